"""`unseal_month YYYY-MM`: load back what the database lacks of a sealed month, and take its files away."""

from __future__ import annotations

import getpass
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.models import SealedMonth
from billing.sealed_months import folder, summary, unseal
from billing.sealed_months.errors import SealError
from billing.sealed_months.verify import was_dropped
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand, RefusedError, utc_month


class Command(OperatorCommand):
    help = (
        "Load what the database lacks of a sealed month, and take its files away. Without --yes, only say so."
    )
    refusals: ClassVar[tuple[type[Exception], ...]] = (SealError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", metavar="YYYY-MM", help="a sealed UTC month")
        parser.add_argument("--yes", action="store_true", help="unseal it")

    def answer(self, *, month: str, yes: bool, **_: Any) -> Answer:
        day = utc_month(month)
        row = SealedMonth.objects.prefetch_related("files").filter(month=day).first()
        if row is None and not unseal.is_left(day):
            raise RefusedError(f"{day:%Y-%m} is not sealed.")
        sizes = summary.sizes(row)
        loaded: dict[str, int] = {}
        if yes:
            with acting_as(f"{getpass.getuser()} at the shell"):
                loaded = unseal.unseal_month(month=day)
        rows = ", ".join(f"{count:,} {kind}" for kind, count in loaded.items() if count)
        away = "set aside, as backups may need them" if row is not None and was_dropped(row) else "deleted"
        text = (
            f"{day:%Y-%m} is not sealed any more; loaded back: {rows or 'nothing, the database had all of it'}."
            if yes
            else f"{row}: {sizes['files']:,} files of {sizes['bytes']:,} bytes would be loaded and {away}."
            if row is not None
            else f"{day:%Y-%m} is not sealed, and has files: they would be deleted or set aside."
        )
        if aside := folder.set_aside(day):
            text += f" Files set aside, which this database did not seal or a backup may need: {', '.join(aside)}."
        data = {"month": f"{day:%Y-%m}", "unsealed": yes, **sizes, "loaded": loaded, "set_aside": aside}
        return Answer(data, text)
