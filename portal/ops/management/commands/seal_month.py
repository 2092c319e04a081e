"""`seal_month [YYYY-MM]`: write a month's rows as files proved equal to the ledger; without a month, list all."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import CommandParser

from billing.sealed_months import folder, readiness, seal
from billing.sealed_months.errors import SealError
from billing.sealed_months.summary import as_data
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand, RefusedError, utc_month
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Seal a month: write its rows as Parquet files and prove them. Without --yes, only say whether it may be."
    refusals: ClassVar[tuple[type[Exception], ...]] = (SealError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "month", metavar="YYYY-MM", nargs="?", help="a UTC month; without, all are listed"
        )
        parser.add_argument("--yes", action="store_true", help="seal it")

    def answer(self, *, month: str | None, yes: bool, **_: Any) -> Answer:
        now = datetime.now(UTC).replace(microsecond=0)
        quiet = settings.CLUSTERTAB_SEAL_AFTER_MONTHS
        if month is None:
            states = [as_data(state) for state in readiness.list_months(moment=now, quiet_months=quiet)]
            return Answer(
                {"months": states}, "\n".join(map(_line, states)) or "There is no month with usage yet."
            )
        day = utc_month(month)
        folder.directory()
        state = readiness.state_of(day, moment=now, quiet_months=quiet)
        if yes and state.sealed is None:
            with acting_as(f"{getpass.getuser()} at the shell"):
                seal.seal_month(month=day, moment=now, quiet_months=quiet)
            state = readiness.state_of(day, moment=now, quiet_months=quiet)
        elif state.blockers:
            raise RefusedError(*(f"{month}: {sentence(blocker)}" for blocker in state.blockers))
        data = as_data(state)
        return Answer(data, _line(data))


def _line(data: dict[str, Any]) -> str:
    if data["sealed_at"]:
        since = "; it was changed since, and the files are as before" if data["state"] == "changed" else ""
        return (
            f"{data['month']}: sealed on {data['sealed_at']:%Y-%m-%d}, {data['records']:,} records in "
            f"{data['files']:,} files of {data['bytes']:,} bytes{since}."
        )
    if data["blockers"]:
        return f"{data['month']}: {' '.join(data['blockers'])}"
    return f"{data['month']}: may be sealed."
