"""`write_job_prices CLUSTER [--on | --off]`: write what jobs cost into their comments, now or not at all."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from billing.job_prices import run
from clusters.job_prices import set_job_prices
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_cluster


class Command(OperatorCommand):
    help = "Write what waiting and running jobs cost into Slurm's admin_comment."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument("--on", action="store_true", help="from now on, every half an hour")
        choice.add_argument("--off", action="store_true", help="no more")

    def answer(self, *, cluster: str, on: bool, off: bool, **_: Any) -> Answer:
        row = the_cluster(cluster)
        if on or off:
            with acting_as("write_job_prices", why=cluster):
                set_job_prices(cluster=row, on=on)
        if off:
            data = {"cluster": cluster, "on": False, "written": 0, "error": ""}
            return Answer(data, f"Nothing is written into jobs of {cluster} any more.")
        if not (on or row.job_prices):
            raise BadInputError(f"{cluster} is not to have it: add --on.")
        tally = run.write_job_prices(
            cluster=row,
            moment=datetime.now(UTC).replace(microsecond=0),
            opens=lambda cluster: run.open_comments(cluster, clock=lambda: int(time.time())),
        )
        data = {"cluster": cluster, "on": True, "written": tally.written, "error": tally.error}
        text = f"Written into {tally.written} jobs of {cluster}."
        return Answer(data, f"{text} {tally.error}".strip(), 1 if tally.error else 0)
