"""`reset_watermark CLUSTER`: take a cluster's watermark back, after a clock that ran ahead or to read usage again."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from clusters import watermark
from clusters.watermark import WatermarkError
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand, moment
from portal.ops.lookups import the_cluster


class Command(OperatorCommand):
    help = "Take a cluster's watermark back, so that usage from there on is read again. Asks before it does."
    refusals: ClassVar[tuple[type[Exception], ...]] = (WatermarkError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        parser.add_argument(
            "--to",
            metavar="T",
            help="default: what was read before the first sync with a clock that ran ahead",
        )
        parser.add_argument("--why", metavar="REASON", default="", help="kept in the history")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def answer(self, *, cluster: str, to: str | None, why: str, yes: bool, **_: Any) -> Answer:
        cluster_row, now = the_cluster(cluster), datetime.now(UTC).replace(microsecond=0)
        target = (
            moment(to, ZoneInfo(cluster_row.timezone)) if to else watermark.proposed(cluster_row, moment=now)
        )
        planned = watermark.plan_reset(cluster=cluster_row, to=target, moment=now)
        if self.asks(yes=yes):
            self.confirm(planned.sentence)
        with acting_as(f"{getpass.getuser()} at the shell", why=why):
            done = watermark.reset(cluster=cluster_row, to=target, moment=now)
        return Answer({"cluster": cluster, "was": done.was, "to": done.to}, done.sentence)
