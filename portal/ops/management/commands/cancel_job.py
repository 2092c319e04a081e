"""`cancel_job CLUSTER JOB`: end a job."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from clusters.enforcement_plan import Request
from clusters.models import ActKind
from portal.excerpt import quoted
from portal.ops.cli import BadInputError
from portal.ops.control_command import ControlCommand


class Command(ControlCommand):
    help = "Cancel a job, or all tasks of an array. Says what it would do; does it with --yes."

    def targets(self, parser: CommandParser) -> None:
        parser.add_argument("job", metavar="JOB", help="the scheduler's number of the job")

    def request(self, options: dict[str, Any]) -> Request:
        job: str = options["job"]
        if not (job.isascii() and job.isdigit() and len(job) < 19 and int(job)):
            raise BadInputError(
                f"{quoted(job)} is not a job's number; write it as `squeue -o %A` prints it, like 4711."
            )
        return Request(kind=ActKind.CANCEL, job=int(job))
