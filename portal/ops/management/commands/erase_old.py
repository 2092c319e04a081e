"""`erase_old --why REASON`: erase what has stood for the years of RETENTION_YEARS, after saying how much that is."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import CommandParser

from billing.documents.job_users import NamesInFilesError
from portal.core.audit import acting_as
from portal.excerpt import quoted
from portal.ops import old_rows
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.retention import years_before


class Command(OperatorCommand):
    help = "Erase what is older than RETENTION_YEARS allows. Asks before it does, with how much that is."
    refusals: ClassVar[tuple[type[Exception], ...]] = (NamesInFilesError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--why", metavar="REASON", required=True, help="kept in the history")
        parser.add_argument("--kind", action="append", default=[], help="only this one; may be repeated")
        parser.add_argument("--dry-run", action="store_true", help="only count")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def answer(self, *, why: str, kind: list[str], dry_run: bool, yes: bool, **_: Any) -> Answer:
        if not why.strip():
            raise BadInputError("Say why: the reason is kept in the history.")
        now = datetime.now(UTC).replace(microsecond=0)
        years = _years(kind)
        cutoffs = {name: years_before(now, count) for name, count in years.items()}
        rows = {name: old_rows.count(kind=name, before=before) for name, before in cutoffs.items()}
        if not dry_run:
            if any(rows.values()) and self.asks(yes=yes):
                self.confirm(f"{_text(rows, cutoffs, 'to be erased')}\nErase this for good?")
            with acting_as(f"{getpass.getuser()} at the shell", why=why):
                rows = {
                    name: old_rows.erase(kind=name, before=before, moment=now, reason=why.strip())
                    for name, before in cutoffs.items()
                }
        data = [
            {"kind": name, "years": years[name], "before": before, "rows": rows[name]}
            for name, before in cutoffs.items()
        ]
        return Answer(
            {"dry_run": dry_run, "kinds": data}, _text(rows, cutoffs, "to be erased" if dry_run else "erased")
        )


def _years(kinds: list[str]) -> dict[str, int]:
    """Of the kinds that are chosen, or of all that have years."""
    years: dict[str, int] = settings.CLUSTERTAB_RETENTION_YEARS
    erasable = ", ".join(old_rows.ERASABLE)
    for name in (*years, *kinds):
        if name not in old_rows.ERASABLE:
            raise BadInputError(f"{quoted(name)} is no kind that can be erased; there are {erasable}.")
    if without := [name for name in kinds if name not in years]:
        raise BadInputError(f"RETENTION_YEARS has no years for {', '.join(without)}.")
    if not years:
        raise BadInputError(f"RETENTION_YEARS is not set, so everything stays: give years to {erasable}.")
    return {name: years[name] for name in kinds or years}


def _text(rows: dict[str, int], cutoffs: dict[str, datetime], verb: str) -> str:
    return "\n".join(
        f"{name}: {count:,} {verb}, from before {cutoffs[name]:%Y-%m-%d}." for name, count in rows.items()
    )
