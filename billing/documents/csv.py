"""Tables as CSV that a spreadsheet opens without running anything a tenant wrote."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO

Cell = str | int | Decimal | date | None

# What makes a spreadsheet read a text as a formula, also in full width and behind white space.
_FORMULA = tuple(
    "=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
    "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
_MARKS = "".join(sorted(filter(str.strip, _FORMULA), key="-".__eq__))  # in a class a hyphen stands last
_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))
FORMULA = f"^([\t\r\n]|[{_SPACE}]*[{_MARKS}])"
"""The texts that `cell` disarms, as a regular expression that PostgreSQL reads the same way."""
_FIRST_PIECE = 4 << 10  # so that who waits sees that it begins
_PIECE = 1 << 16  # characters gathered before they are sent on


def cell(value: Cell) -> str:
    """The value as one cell: texts that would run as a formula begin with an apostrophe, numbers stay.

    Decimals keep their places and have no exponent, dates are ISO 8601, None is empty.
    """
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) or value.lstrip().startswith(_FORMULA) else value
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date):
        return value.isoformat()
    return "" if value is None else str(value)


def instant(second: int | None) -> str:
    """An epoch second as ISO 8601 in UTC, None as empty."""
    return "" if second is None else f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def rows_to_csv(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    """RFC 4180 in UTF-8, the header first, in pieces of about 64 KiB as the rows come; a smaller one at first."""
    piece, size = StringIO(newline=""), _FIRST_PIECE
    writer = csv.writer(piece)
    writer.writerow([cell(name) for name in header])
    for row in rows:
        writer.writerow([cell(value) for value in row])
        if piece.tell() >= size:
            yield _taken(piece)
            size = _PIECE
    yield _taken(piece)


def _taken(piece: StringIO) -> bytes:
    content = piece.getvalue().encode("utf-8", errors="replace")
    piece.seek(0)
    piece.truncate()
    return content
