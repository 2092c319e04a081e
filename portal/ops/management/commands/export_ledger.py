"""`export_ledger MONTH [FILE]`: the journal of a month for the general ledger."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import CommandParser

from billing.reports import journal
from billing.reports.journal import AccountsError
from billing.rules.errors import RuleError
from billing.rules.period import parse_month, shifted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.whole_files import whole_file
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Write what happened in a month as debits and credits for the general ledger, as CSV."
    refusals: ClassVar[tuple[type[Exception], ...]] = (AccountsError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", metavar="MONTH", help="such as 2026-03: the days on which it happened")
        parser.add_argument("file", metavar="FILE", nargs="?", help="default: ledger-MONTH.csv")

    def answer(self, **options: Any) -> Answer:
        try:
            month = parse_month(options["month"])
        except RuleError as error:
            raise BadInputError(sentence(error)) from error
        numbers = journal.numbers_of(settings.CLUSTERTAB_LEDGER_ACCOUNTS)
        found = journal.entries(since=date(*month, 1), until=date(*shifted(month, 1), 1))
        path = Path(options["file"] or f"ledger-{options['month']}.csv")
        with whole_file(path) as file:
            size = sum(file.write(piece) for piece in journal.as_csv(found, numbers))
        data = {"month": options["month"], "entries": len(found), "file": path.name, "bytes": size}
        return Answer(data, f"{path}: {len(found)} entries of {options['month']}.")
