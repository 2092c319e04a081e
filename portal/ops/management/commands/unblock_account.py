"""`unblock_account CLUSTER ACCOUNT`: give an account back the limits from before it was blocked."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from clusters.enforcement_plan import Request
from clusters.models import ActKind
from portal.ops.control_command import ControlCommand


class Command(ControlCommand):
    help = "Lift the block of an account. Says what it would do; does it with --yes."

    def targets(self, parser: CommandParser) -> None:
        parser.add_argument("account", metavar="ACCOUNT")

    def request(self, options: dict[str, Any]) -> Request:
        return Request(kind=ActKind.UNBLOCK, account=options["account"])
