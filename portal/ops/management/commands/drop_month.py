"""`drop_month YYYY-MM`: empty the tables of a sealed month, or load them again."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.models import SealedMonth
from billing.sealed_months import drop
from billing.sealed_months.errors import SealError
from billing.sealed_months.summary import sizes
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand, RefusedError, utc_month
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Drop the rows of a sealed month, which its files keep, or load them. Without --yes, only say so."
    refusals: ClassVar[tuple[type[Exception], ...]] = (SealError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", metavar="YYYY-MM", help="a sealed UTC month")
        parser.add_argument("--load", action="store_true", help="load the rows of a dropped month instead")
        parser.add_argument(
            "--all-processes-replaced",
            action="store_true",
            help="every process of release 1.0.0 has ended, on each machine; asked of the first month",
        )
        parser.add_argument("--yes", action="store_true", help="do it")

    def answer(self, *, month: str, load: bool, yes: bool, all_processes_replaced: bool, **_: Any) -> Answer:
        day = utc_month(month)
        row = SealedMonth.objects.prefetch_related("files").filter(month=day).first()
        if row is None:
            raise RefusedError(f"{day:%Y-%m} is not sealed.")
        loaded: dict[str, int] = {}
        with acting_as(f"{getpass.getuser()} at the shell"):
            if load and yes:
                loaded = drop.load_back(month=day)
                row.dropped_at = None
            elif yes:
                row = drop.drop_month(
                    month=day,
                    moment=datetime.now(UTC).replace(microsecond=0),
                    all_processes_replaced=all_processes_replaced,
                )
            elif not load and row.dropped_at is None and (blocker := drop.why_not(row)) is not None:
                raise RefusedError(f"{day:%Y-%m}: {sentence(blocker)}")
        asks = not load and row.dropped_at is None and drop.is_first()
        data = {"month": f"{day:%Y-%m}", "dropped_at": row.dropped_at, **sizes(row), "loaded": loaded}
        return Answer(data, _text(row, data, load=load, yes=yes, asks=asks))


def _text(row: SealedMonth, data: dict[str, Any], *, load: bool, yes: bool, asks: bool) -> str:
    if load and yes:
        rows = ", ".join(f"{count:,} {kind}" for kind, count in data["loaded"].items() if count)
        return f"{row}: loaded {rows or 'nothing, the database has all of it'}. It is still sealed."
    if load:
        return f"{row}: what the database lacks of {data['files']:,} files would be loaded."
    if row.dropped_at is not None:
        return f"{row}: the rows of {data['records']:,} records stand in {data['files']:,} files alone."
    text = f"{row}: may be dropped, the rows of {data['records']:,} records."
    return f"{text} {sentence(SealError('old-processes'))} (--all-processes-replaced)" if asks else text
