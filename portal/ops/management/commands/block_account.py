"""`block_account CLUSTER ACCOUNT`: keep an account's GPU jobs from starting, by its limits."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from clusters.enforcement_plan import Request
from clusters.models import ActKind
from portal.ops.control_command import ControlCommand


class Command(ControlCommand):
    help = "Keep the GPU jobs of an account from starting. Says what it would do; does it with --yes."

    def targets(self, parser: CommandParser) -> None:
        parser.add_argument("account", metavar="ACCOUNT")
        parser.add_argument(
            "--submit", action="store_true", help="refuse new jobs too, also those without GPUs"
        )

    def request(self, options: dict[str, Any]) -> Request:
        return Request(kind=ActKind.BLOCK, account=options["account"], submits=options["submit"])
