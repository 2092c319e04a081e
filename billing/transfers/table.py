"""Bank statements as CSV: columns are found by their names in the header, in English or as German banks write them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime

from billing.rules.money import Money, is_currency
from billing.transfers.values import (
    MOST_BYTES,
    NAME,
    RAW,
    TEXT,
    BadEntry,
    Entry,
    Statement,
    StatementError,
    known,
)

NAMES: Mapping[str, tuple[str, ...]] = {
    "booked_on": ("booked_on", "date", "booking date", "buchungstag", "buchungsdatum"),
    "amount": ("amount", "betrag"),
    "currency": ("currency", "währung", "waehrung"),
    "payer": (
        "payer",
        "name",
        "beguenstigter/zahlungspflichtiger",
        "auftraggeber/empfänger",
        "zahlungspflichtiger",
    ),
    "payer_iban": ("payer_iban", "iban", "kontonummer/iban", "iban zahlungsbeteiligter"),
    "text": ("text", "remittance", "verwendungszweck"),
    "bank_reference": ("bank_reference", "transaction id", "bankreferenz"),
    "end_to_end": (
        "end_to_end",
        "end-to-end reference",
        "kundenreferenz (end-to-end)",
        "end-to-end-referenz",
    ),
    "state": ("state", "status", "info"),
}
"""By our name of a column how it may be written, whatever the case."""
_NEEDED = ("booked_on", "amount")
_PENDING = frozenset({"pending", "pdng", "vorgemerkt", "umsatz vorgemerkt"})
_AMOUNT = re.compile(r"[+-]?\d+([.,]\d+)*[+-]?", re.ASCII)
_SPACES = re.compile(r"[\s  '’]")
ROWS = 100_000


def statement(data: bytes, *, account: str, currency: str = "", decimal: str = "") -> Statement:
    """The rows of a file, of the account that it is about. StatementError where it cannot be read as a table.

    `currency`: of rows that name none. `decimal`: "," or "."; "" finds it out, and refuses where it cannot be told.
    CSV has no balances, so whether a row is missing is not seen.
    """
    rows = _rows(_decoded(data))
    places = _places(rows[0][1])
    told = [(line, row) for line, row in rows[1:] if any(cell.strip() for cell in row)]
    mark = decimal or _decimal_mark([_cell(row, places, "amount") for _, row in told])
    entries: list[Entry] = []
    bad: list[BadEntry] = []
    pending = 0
    for line, row in told:
        if _cell(row, places, "state").lower() in _PENDING:
            pending += 1
            continue
        try:
            entries.append(_entry(row, places, currency, mark))
        except ValueError as error:
            bad.append(BadEntry(place=f"line {line}", reason=str(error), raw=";".join(row)[:RAW]))
    return Statement(
        account=account.replace(" ", "").upper(),
        currency=currency or (entries[0].currency if entries else ""),
        name="CSV",
        opening=None,
        closing=None,
        entries=tuple(entries),
        bad=tuple(bad),
        pending=pending,
    )


def _decoded(data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise StatementError(f"The file is larger than {MOST_BYTES >> 20} MiB: cut it into shorter periods.")
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
    raise StatementError("The file is no text in UTF-8, UTF-16 or Windows-1252: save it as CSV in UTF-8.")


def _rows(text: str) -> list[tuple[int, list[str]]]:
    """The rows with their lines, from the header on: what some banks write above it is left out."""
    for separator in (";", ",", "\t"):
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        rows: list[tuple[int, list[str]]] = []
        try:
            for row in reader:
                if rows or set(_NEEDED) <= set(_places(row)):
                    rows.append((reader.line_num, row))
                if len(rows) > ROWS:
                    raise StatementError(
                        f"There are more than {ROWS:,} rows: cut the file into shorter periods."
                    )
        except csv.Error as error:
            if rows:
                raise StatementError(
                    f"Line {reader.line_num} is no CSV that can be read: {error}."
                ) from error
        if rows:
            return rows
    wanted = " and ".join(repr(name) for name in _NEEDED)
    raise StatementError(
        f"No line of the file is a header with the columns {wanted}: docs/transfers.md says which columns there are."
    )


def _places(header: Sequence[str]) -> dict[str, int]:
    """By our name the place of the column."""
    written = [" ".join(cell.split()).lower() for cell in header]
    found = {}
    for name, ways in NAMES.items():
        for way in ways:
            if way in written:
                found[name] = written.index(way)
                break
    return found


def _cell(row: Sequence[str], places: Mapping[str, int], name: str) -> str:
    place = places.get(name)
    return " ".join(row[place].split()) if place is not None and place < len(row) else ""


def _decimal_mark(amounts: Iterable[str]) -> str:
    """What stands before the cents, by the amounts that can only be meant in one way."""
    marks: set[str] = set()
    single = False
    for amount in amounts:
        told = _SPACES.sub("", amount).strip("+-")
        signs = [sign for sign in told if sign in ".,"]
        if len(set(signs)) == 2:
            marks.add(signs[-1])
        elif len(signs) > 1:
            marks.add("," if signs[0] == "." else ".")
        elif signs:
            after = len(told) - told.index(signs[0]) - 1
            if after != 3:
                marks.add(signs[0])
            else:
                single = True
    if len(marks) > 1:
        raise StatementError(
            "Some amounts have a decimal comma and some a decimal point: export the file in one language."
        )
    if not marks and single:
        raise StatementError(
            "1.234 may be a thousand or one: say with --decimal which sign stands before cents."
        )
    return marks.pop() if marks else "."


def _entry(row: Sequence[str], places: Mapping[str, int], currency: str, mark: str) -> Entry:
    told = {name: _cell(row, places, name) for name in NAMES}
    unit = told["currency"].upper() or currency
    if not unit:
        raise ValueError("It does not say its currency: say it with --currency, or in a column 'currency'.")
    if not is_currency(unit):
        raise ValueError(f"{unit!r} is no currency.")
    amount = _minor(told["amount"], unit, mark)
    if not amount:
        raise ValueError("It is over nothing.")
    return Entry(
        amount=amount,
        currency=unit,
        booked_on=_day(told["booked_on"]),
        bank_reference=known(told["bank_reference"])[:NAME],
        end_to_end=told["end_to_end"][:NAME],
        payer=told["payer"][:NAME],
        payer_iban=told["payer_iban"].replace(" ", "").upper()[:42],
        text=told["text"][:TEXT],
        raw=";".join(row)[:RAW],
    )


def _minor(text: str, currency: str, mark: str) -> int:
    told = _SPACES.sub("", text)
    if not _AMOUNT.fullmatch(told):
        raise ValueError(f"{text!r} is no amount.")
    negative = "-" in {told[0], told[-1]}
    plain = told.strip("+-").replace("." if mark == "," else ",", "").replace(mark, ".")
    money = Money.of(f"-{plain}" if negative else plain, currency)
    money.check_bookable()
    return money.minor


def _day(text: str) -> date:
    for form in ("%Y-%m-%d", "%d.%m.%Y", "%d.%m.%y"):
        try:
            return datetime.strptime(text, form).date()  # noqa: DTZ007 - a day has no zone
        except ValueError:
            continue
    raise ValueError(f"{text!r} is no day; write it like 2026-03-31 or 31.03.2026.")
