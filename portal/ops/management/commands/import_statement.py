"""`import_statement FILE`: take in a bank statement, and book the transfers that are sure."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.bank_transfers import statement_import
from billing.bank_transfers.entities import MOST_BYTES, ReadOptions, StatementError, parse_meanings
from billing.bank_transfers.statement_import import ImportResult
from billing.models import TransferState
from billing.rules.money import Money
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Take in a bank statement (camt.053 or CSV). The same file again, or one that overlaps, books nothing twice."
    refusals: ClassVar[tuple[type[Exception], ...]] = (StatementError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument(
            "--format", choices=("camt", "csv"), default="", help="seen from the file, unless said"
        )
        parser.add_argument("--account", default="", metavar="IBAN", help="the seller's, unless said")
        parser.add_argument("--currency", default="", metavar="CUR", help="of a CSV without such a column")
        parser.add_argument(
            "--decimal", choices=(".", ","), default="", help="what stands before cents in a CSV"
        )
        parser.add_argument(
            "--dates",
            choices=("dmy", "mdy"),
            default="",
            help="whether the day or the month of 04/08/2026 is first",
        )
        parser.add_argument(
            "--column",
            action="append",
            default=[],
            metavar="NAME=MEANING",
            help="what a column of a CSV means",
        )
        parser.add_argument(
            "--word", action="append", default=[], metavar="WORD=MEANING",
            help="what a word of a state or a direction in a CSV means",
        )  # fmt: skip
        parser.add_argument(
            "--unchecked", action="store_true", help="camt.053 without opening or closing balance, too"
        )
        parser.add_argument("--dry-run", action="store_true", help="say what would be booked; keep nothing")

    def answer(self, **options: Any) -> Answer:
        file: Path = options["file"]
        try:
            with file.open("rb") as handle:
                data = handle.read(MOST_BYTES + 1)
        except OSError as error:
            raise BadInputError(f"{file} cannot be read: {error.strerror}.") from error
        with acting_as("import_statement"):
            done = statement_import.import_statement(
                data=data,
                name=file.name,
                by="import_statement",
                moment=datetime.now(UTC).replace(microsecond=0),
                options=_read_options(options),
                preview=options["dry_run"],
            )
        return Answer(
            _data(done, previewed=options["dry_run"]), summarize(done, previewed=options["dry_run"])
        )


def _read_options(options: dict[str, Any]) -> ReadOptions:
    return ReadOptions(
        form=options["format"],
        account=options["account"],
        currency=options["currency"],
        decimal=options["decimal"],
        dates=options["dates"],
        columns=parse_meanings(options["column"]),
        words=parse_meanings(options["word"]),
        unchecked=options["unchecked"],
    )


def _data(done: ImportResult, *, previewed: bool) -> dict[str, Any]:
    return {
        "dry_run": previewed,
        "statements": [
            {
                "account": row.account,
                "name": row.name,
                "currency": row.currency,
                "checked": row.opening is not None,
                "opening": _text(row.opening, row.currency),
                "closing": _text(row.closing, row.currency),
                "entries": row.entries,
                "new": row.new,
                "pending": row.pending,
            }
            for row in done.statements
        ],
        "known": done.duplicates,
        "finished": sum(row.state != TransferState.NEW for row in done.finished),
        "refused": [
            {"place": bad.place, "code": bad.error.code, "reason": sentence(bad.error)}
            for bad in done.refused
        ],
        "transfers": [
            {
                "booked_on": row.booked_on,
                "amount": _text(row.amount, row.currency),
                "currency": row.currency,
                "payer": row.payer,
                "state": row.state,
                "why": row.reason,
            }
            for row in done.rows
        ],
    }


def summarize(done: ImportResult, *, previewed: bool = False) -> str:
    """What came of a file, in words."""
    count = done.states
    parts = [
        f"{len(done.rows)} new, {done.duplicates} known before",
        f"{count[TransferState.BOOKED]} booked, {count[TransferState.WAITING]} to be looked at",
    ]
    if count[TransferState.IGNORED]:
        parts.append(f"{count[TransferState.IGNORED]} that left the account set aside")
    if count[TransferState.NEW]:
        parts.append(
            f"{count[TransferState.NEW]} not matched yet, which a worker tries each minute (its log has why)"
        )
    if finished := sum(row.state != TransferState.NEW for row in done.finished):
        parts.append(f"{finished} left by an earlier import that was broken off, matched now")
    if done.refused:
        parts.append(f"{len(done.refused)} in quarantine")
    if unchecked := [row.name for row in done.statements if row.form == "camt" and row.opening is None]:
        parts.append(f"{', '.join(unchecked)} not checked by balances")
    if pending := sum(row.pending for row in done.statements):
        parts.append(f"{pending} not booked by the bank yet")
    return ("Nothing was kept; it would be: " if previewed else "") + "; ".join(parts) + "."


def _text(minor: int | None, currency: str) -> str | None:
    return None if minor is None else Money.from_minor(minor, currency).text
