"""`release_jobs CLUSTER ACCOUNT`: let an account's jobs go that were held from here."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from clusters.enforcement_plan import Request
from clusters.models import ActKind
from portal.ops.control_command import ControlCommand


class Command(ControlCommand):
    help = (
        "Release the jobs of an account that were held from here. Says what it would do; does it with --yes."
    )

    def targets(self, parser: CommandParser) -> None:
        parser.add_argument("account", metavar="ACCOUNT")
        parser.add_argument("--user", metavar="USER", default="", help="this user's jobs alone")

    def request(self, options: dict[str, Any]) -> Request:
        return Request(kind=ActKind.RELEASE, account=options["account"], user=options["user"])
