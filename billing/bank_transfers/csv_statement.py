"""Bank statements as CSV: what is not certain to be money that came is refused or put into quarantine.

`csv_columns.py` says what columns mean, `csv_words.py` what words of state and direction do, `csv_days.py` reads days.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from billing.bank_transfers import csv_columns, csv_words
from billing.bank_transfers.csv_columns import Columns
from billing.bank_transfers.csv_days import find_order, parse_day
from billing.bank_transfers.csv_words import Word
from billing.bank_transfers.entities import (
    MOST_BYTES,
    NAME,
    RAW,
    TEXT,
    BadEntry,
    Entry,
    ReadOptions,
    Statement,
    StatementError,
    clean_reference,
)
from billing.rules.bank_entries import EntryError
from billing.rules.errors import RuleError
from billing.rules.money import Money, is_currency
from portal.excerpt import excerpt, quoted

_AMOUNT = re.compile(r"[+-]?\d+([.,]\d+)*[+-]?", re.ASCII)
_SPACES = re.compile(r"[\s  '’]")
_IBAN = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{8,30}", re.ASCII)
_BALANCES = frozenset(
    ("anfangssaldo", "endsaldo", "tagessaldo", "opening balance", "closing balance", "balance brought forward",
     "solde initial", "solde final", "saldo inicial", "saldo final")
)  # fmt: skip
"""What stands in rows that say how much there is, and move nothing."""
_PARTIES = ("payer", "payee", "payer_iban")
ROWS = 100_000
THOUSAND = 3  # digits behind what parts thousands


@dataclass(frozen=True, slots=True)
class _Table:
    """What holds for all rows of a file."""

    columns: Columns
    words: Mapping[str, Word]
    order: str  # "dmy", "mdy" or ""
    mark: str  # what stands before cents
    currency: str  # of rows that name none
    wordy: tuple[int, ...]  # columns of states in which anything stands


def read_csv(data: bytes, options: ReadOptions) -> Statement:
    """The rows of a file, of the account `options.account`. StatementError where it cannot be read for certain.

    CSV has no balances, so whether a row is missing is not seen.
    """
    by_name, words = csv_columns.parse_columns(options.columns), csv_words.parse_words(options.words)
    (_, header), *rest = _read_rows(_decode(data), by_name)
    rest = [(line, row) for line, row in rest if any(cell.strip() for cell in row)]
    columns = csv_columns.resolve_columns(
        header, [row for _, row in rest if not _names_balance(row)], by_name
    )
    rows = [(line, row) for line, row in rest if not _is_balance(row, columns)]
    rows = _filter_account(rows, columns, options.account)
    states = columns.places.get("state", ())
    wordy = tuple(place for place in states if any(_at(row, place) for _, row in rows))
    unread = _Table(columns, words, "", "", options.currency or columns.unit, wordy)
    booked = [(line, row) for line, row in rows if not _is_pending(row, unread)]
    entries, bad = _read_entries(booked, _detect_formats(unread, [row for _, row in booked], options))
    return Statement(
        account=options.account.replace(" ", "").upper(),
        currency=options.currency or (entries[0].currency if entries else ""),
        name="CSV",
        opening=None,
        closing=None,
        entries=tuple(entries),
        bad=tuple(bad),
        pending=len(rows) - len(booked),
    )


def _detect_formats(table: _Table, rows: Sequence[Sequence[str]], options: ReadOptions) -> _Table:
    """With the order of days and the decimal mark that its rows tell, or that are said."""
    columns = table.columns
    amounts = [columns.cell(row, column) for row in rows for column in ("amount", "credit", "debit")]
    return _Table(
        columns=columns,
        words=table.words,
        order=find_order([columns.cell(row, "booked_on") for row in rows], options.dates),
        mark=options.decimal or _find_decimal_mark(amounts),
        currency=table.currency,
        wordy=table.wordy,
    )


def _read_entries(
    rows: Sequence[tuple[int, Sequence[str]]], table: _Table
) -> tuple[list[Entry], list[BadEntry]]:
    entries: list[Entry] = []
    bad: list[BadEntry] = []
    for line, row in rows:
        try:
            entries.append(_read_entry(row, table))
        except RuleError as error:
            bad.append(BadEntry(place=f"line {line}", error=error, raw=";".join(row)[:RAW]))
    return entries, bad


def _names_balance(row: Sequence[str]) -> bool:
    return any(cell.strip().casefold() in _BALANCES for cell in row)


def _is_balance(row: Sequence[str], columns: Columns) -> bool:
    """Whether it says how much there is. A payer may write the same words: then the row names who paid."""
    names = [party for party in _PARTIES if party in columns.places]
    return bool(names) and _names_balance(row) and not any(columns.cell(row, party) for party in names)


def _filter_account(
    rows: list[tuple[int, list[str]]], columns: Columns, account: str
) -> list[tuple[int, list[str]]]:
    """Of a file about several accounts the rows of ours. StatementError where it is about others alone."""
    ours = "".join(account.split()).upper()
    named = [(line, row, "".join(columns.cell(row, "own_account").split()).upper()) for line, row in rows]
    ibans = {iban for *_, iban in named if _IBAN.fullmatch(iban)}
    if not ibans or not _IBAN.fullmatch(ours):
        return rows
    if ours not in ibans:
        raise StatementError("other-account", accounts=", ".join(sorted(ibans)[:3]), account=ours)
    return [(line, row) for line, row, iban in named if iban == ours or not _IBAN.fullmatch(iban)]


def _decode(data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise StatementError("file-too-large", most=MOST_BYTES >> 20)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        codecs: tuple[str, ...] = ("utf-16",)
    else:
        codecs = ("utf-8-sig", "cp1252")
    for codec in codecs:
        try:
            text = data.decode(codec)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise StatementError("csv-charset")


def _read_rows(text: str, columns: Mapping[str, str]) -> list[tuple[int, list[str]]]:
    """The rows with their lines, from the header on: what some banks write above it is left out."""
    for separator in (";", ",", "\t"):
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        rows: list[tuple[int, list[str]]] = []
        try:
            for row in reader:
                if rows or csv_columns.is_header(row, columns):
                    rows.append((reader.line_num, row))
                if len(rows) > ROWS:
                    raise StatementError("csv-rows", most=ROWS)
        except csv.Error as error:
            if rows:
                raise StatementError("csv-line", line=reader.line_num, reason=error) from error
        if rows:
            return rows
    raise StatementError("csv-header")


def _find_decimal_mark(amounts: Iterable[str]) -> str:
    """What stands before the cents, by the amounts that can only be meant in one way."""
    marks: set[str] = set()
    single = False
    for amount in amounts:
        plain = _SPACES.sub("", amount).strip("+-\N{MINUS SIGN}")
        signs = [sign for sign in plain if sign in ".,"]
        if len(set(signs)) == 2:
            marks.add(signs[-1])
        elif len(signs) > 1:
            marks.add("," if signs[0] == "." else ".")
        elif signs:
            after = len(plain) - plain.index(signs[0]) - 1
            if after != 3:
                marks.add(signs[0])
            else:
                single = True
    if len(marks) > 1:
        raise StatementError("csv-decimals-mixed")
    if not marks and single:
        raise StatementError("csv-decimals-unsure")
    return marks.pop() if marks else "."


def _is_pending(row: Sequence[str], table: _Table) -> bool:
    """Whether the bank has not booked it yet. StatementError for a word that nobody knows."""
    texts = [_at(row, place) for place in table.wordy]
    states = [csv_words.parse_state(text, table.words) for text in texts if text]
    if Word.FAILED in states:
        return False
    return Word.PENDING in states or csv_words.is_pending(table.columns.cell(row, "booked_on"))


def _read_entry(row: Sequence[str], table: _Table) -> Entry:
    columns = table.columns
    if _names_balance(row) and not any(party in columns.places for party in _PARTIES):
        raise EntryError("perhaps-balance")
    _check_row(row, table)
    unit = _currency(row, table)
    amount = _signed_amount(row, unit, table)
    if not amount:
        raise EntryError("no-amount")
    text = "\n".join(dict.fromkeys(cell for cell in columns.cells(row, "text") if cell))
    side = columns.cell(row, "payer" if amount > 0 else "payee") or columns.cell(row, "payer")
    return Entry(
        amount=amount,
        currency=unit,
        booked_on=parse_day(columns.cell(row, "booked_on"), table.order),
        bank_reference=clean_reference(columns.cell(row, "bank_reference"))[:NAME],
        end_to_end=columns.cell(row, "end_to_end")[:NAME],
        payer=(side or columns.cell(row, "payee"))[:NAME],
        payer_iban=columns.cell(row, "payer_iban").replace(" ", "").upper()[:42],
        text=text[:TEXT],
        reversal=any(csv_words.is_reversal(kind) for kind in columns.cells(row, "kind")),
        raw=";".join(row)[:RAW],
    )


def _check_row(row: Sequence[str], table: _Table) -> None:
    """EntryError for a row of which no money came or went, or whose cells stand below other columns."""
    width = 1 + max(place for places in table.columns.places.values() for place in places)
    if any(cell.strip() for cell in row[width:]):
        raise EntryError("too-many-cells")
    for place in table.wordy:
        text = _at(row, place)
        if not text:
            raise EntryError("state-missing")
        if csv_words.parse_state(text, table.words) == Word.FAILED:
            raise EntryError("state-failed", text=quoted(text))


def _currency(row: Sequence[str], table: _Table) -> str:
    units = {cell.upper() for cell in table.columns.cells(row, "currency") if cell}
    if units and table.columns.unit:
        units.add(table.columns.unit)
    if len(units) > 1:
        raise EntryError("several-currencies", currencies=excerpt(" and in ".join(sorted(units))))
    unit = next(iter(units), table.currency)
    if not unit:
        raise EntryError("currency-missing")
    if not is_currency(unit):
        raise EntryError("currency-none", currency=quoted(unit))
    return unit


def _signed_amount(row: Sequence[str], unit: str, table: _Table) -> int:
    """Above zero what came. EntryError where its columns say different things."""
    columns = table.columns
    written = columns.cell(row, "amount")
    amount = _minor_units(written, unit, table.mark) if written else 0
    if "credit" in columns.places or "debit" in columns.places:
        moved = _two_column_amount(row, unit, table)
        if written and abs(amount) != abs(moved):
            raise EntryError("amount-differs", written=quoted(written))
        amount = moved
    elif not written:
        raise EntryError("amount-no-number", text=quoted(""))
    for text in columns.cells(row, "direction"):
        if not text:
            raise EntryError("direction-missing")
        amount = _apply_direction(amount, text, csv_words.parse_direction(text, table.words), written)
    for kind in columns.cells(row, "kind"):
        if csv_words.is_direction(kind) and (csv_words.parse_direction(kind, {}) == Word.CREDIT) != (
            amount > 0
        ):
            raise EntryError("direction-uncertain", text=quoted(kind), written=quoted(written))
    return amount


def _two_column_amount(row: Sequence[str], unit: str, table: _Table) -> int:
    """Money in, or below zero money out, which some banks write with a minus."""
    cells = [table.columns.cell(row, column) for column in ("credit", "debit")]
    came, went = (_minor_units(cell, unit, table.mark) if cell else 0 for cell in cells)
    if bool(came) == bool(went):
        raise EntryError("money-in-or-out")
    if came < 0:
        raise EntryError("money-in-below-zero", text=quoted(cells[0]))
    return came or -abs(went)


def _apply_direction(amount: int, text: str, word: Word, written: str) -> int:
    if word == Word.FAILED:
        raise EntryError("direction-failed", text=quoted(text))
    if word == Word.DEBIT and "+" not in written:
        return -abs(amount)
    if (word == Word.CREDIT) != (amount > 0):
        raise EntryError("direction-uncertain", text=quoted(text), written=quoted(written))
    return amount


def _at(row: Sequence[str], place: int) -> str:
    return " ".join(row[place].split()) if place < len(row) else ""


def _minor_units(text: str, currency: str, mark: str) -> int:
    plain = _SPACES.sub("", text).replace("\N{MINUS SIGN}", "-")
    if not _AMOUNT.fullmatch(plain):
        raise EntryError("amount-no-number", text=quoted(text))
    negative = "-" in {plain[0], plain[-1]}
    thousands = "." if mark == "," else ","
    whole = plain.strip("+-").partition(mark)[0]
    if thousands in whole and len(whole.rpartition(thousands)[2]) != THOUSAND:
        raise EntryError("thousands-uncertain", text=quoted(text), mark=mark)
    number = plain.strip("+-").replace(thousands, "").replace(mark, ".")
    money = Money.of(f"-{number}" if negative else number, currency)
    money.check_bookable()
    return money.minor
