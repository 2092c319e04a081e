"""Which characters the bundled fonts can print, and what is printed instead of the others.

Names come from schedulers and from tenants, so any character can arrive; an archival PDF is refused as a
whole when one of them has no glyph.
"""

import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from struct import unpack_from

FONTS = Path(__file__).parent / "fonts"
MISSING = "\N{WHITE SQUARE}"
_JOINERS = {0x200C, 0x200D}  # they change the spelling of Persian and Indic words


def printable(text: str) -> str:
    """The text on one line, with `MISSING` in place of every character that no bundled font has.

    Controls and line ends become spaces. Other invisible characters are left out: one of them can turn the
    direction of what follows, so that an amount reads backwards.
    """
    return text.translate(_substitutes)


class _Substitutes(dict[int, str]):
    """A table for `str.translate` that decides about a character when it first meets it."""

    def __missing__(self, code: int) -> str:
        self[code] = _substitute(code)
        return self[code]


_substitutes = _Substitutes()


def _substitute(code: int) -> str:
    match unicodedata.category(chr(code)):
        case "Cc" | "Zl" | "Zp":
            return " "
        case "Cf":
            return chr(code) if code in _JOINERS else ""
        case "Cn" | "Co" | "Cs":
            return MISSING
        case _:
            return chr(code) if _covered()[code >> 3] >> (code & 7) & 1 else MISSING


@cache
def _covered() -> bytes:
    """A bit for each code point: a set of those that are covered would take 3 MiB."""
    bits = bytearray((sys.maxunicode >> 3) + 1)
    for path in sorted(FONTS.iterdir()):
        if path.suffix in (".otf", ".ttf"):
            for code in _characters(path.read_bytes()):
                bits[code >> 3] |= 1 << (code & 7)
    return bytes(bits)


def _characters(font: bytes) -> Iterator[int]:
    """The code points of an OpenType font's `cmap` table, formats 4 and 12 (OpenType 1.9, "cmap")."""
    (tables,) = unpack_from(">H", font, 4)
    records = (unpack_from(">4s4xL", font, 12 + 16 * n) for n in range(tables))
    cmap = dict(records)[b"cmap"]
    (encodings,) = unpack_from(">H", font, cmap + 2)
    for n in range(encodings):
        start = cmap + unpack_from(">L", font, cmap + 4 + 8 * n + 4)[0]
        (kind,) = unpack_from(">H", font, start)
        if kind == 4:
            yield from _segments(font, start)
        elif kind == 12:
            yield from _groups(font, start)


def _segments(font: bytes, start: int) -> Iterator[int]:
    count = unpack_from(">H", font, start + 6)[0] // 2
    ends, starts = start + 14, start + 16 + 2 * count
    deltas, offsets = starts + 2 * count, starts + 4 * count
    for n in range(count):
        last, first, delta, offset = (
            unpack_from(">H", font, column + 2 * n)[0] for column in (ends, starts, deltas, offsets)
        )
        for code in range(first, last + 1):
            glyph = code
            if offset:  # it counts from its own place in the table; without one the delta alone decides
                (glyph,) = unpack_from(">H", font, offsets + 2 * n + offset + 2 * (code - first))
            if (glyph or not offset) and (glyph + delta) % 0x10000:
                yield code


def _groups(font: bytes, start: int) -> Iterator[int]:
    (count,) = unpack_from(">L", font, start + 12)
    for n in range(count):
        first, last, glyph = unpack_from(">3L", font, start + 16 + 12 * n)
        yield from range(first if glyph else first + 1, last + 1)
