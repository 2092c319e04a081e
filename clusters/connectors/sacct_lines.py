"""Bytes → physical lines → rows. sacct escapes nothing, so a line break inside a field splits its row.

Nothing is lost: every line that is not blank is part of exactly one `RawRow`. Memory is bounded by
`LINE_LIMIT`, whatever the file.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

LINE_LIMIT = 2**20  # characters of one row, and bytes of one line
JOIN_LIMIT = 100  # lines of one row
_BLOCK = 2**18


class Line(NamedTuple):
    number: int
    text: str
    fault: str  # "too-long": a piece of one; "unfinished": the file ends within it


class RawRow(NamedTuple):
    """`fields` is None where they could not be told, and then `fault` says why.

    With fields, `fault` is "", "joined" (of several lines) or "unfinished" (the file ends within the row).
    """

    line: int
    text: str
    fields: list[str] | None
    fault: str


def physical_lines(stream: BinaryIO) -> Iterator[Line]:
    """Lines as text, ended by LF or CRLF alone: UTF-8, other bytes as `\\xNN`, NUL as `\\x00`."""
    number, rest, cut = 1, stream.read(3).removeprefix(codecs.BOM_UTF8), False
    while block := stream.read(_BLOCK):
        whole, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            for text in _decoded(whole + newline).split("\n")[:-1]:
                if cut or len(text) > LINE_LIMIT:
                    yield from _pieces(number, text)
                    cut = False
                else:
                    yield Line(number, text, "")
                number += 1
        while len(rest) > LINE_LIMIT:
            yield Line(number, _decoded(rest[:LINE_LIMIT]), "too-long")
            rest, cut = rest[LINE_LIMIT:], True
    if rest:
        yield Line(number, _decoded(rest), "too-long" if cut else "unfinished")


def _pieces(number: int, text: str) -> Iterator[Line]:
    for begin in range(0, len(text), LINE_LIMIT):
        yield Line(number, text[begin : begin + LINE_LIMIT], "too-long")


def _decoded(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    if "\0" in text:  # no database stores it
        text = text.replace("\0", "\\x00")
    return text.replace("\r\n", "\n") if "\r\n" in text else text


def raw_rows(lines: Iterable[Line], *, delimiter: str, width: int) -> Iterator[RawRow]:
    """Rows of `width` fields: lines with fewer are joined while that helps.

    A line that is complete by itself is never joined to a torn one before it.
    """
    torn = _Torn(delimiter, width)
    for line in lines:
        number, text, fault = line
        fields = text.split(delimiter)
        fits = len(fields) == width and fault != "too-long"
        if not fits and len(fields) <= width and fault != "too-long":
            if torn.lines or text.strip():
                yield from torn.add(line, len(fields))
            continue
        if torn.lines:
            yield from torn.give_up()
        if fits:
            yield RawRow(number, text, fields, fault)
        else:
            yield RawRow(line.number, line.text, None, line.fault or "too-many-fields")
    yield from torn.give_up()


class _Torn:
    """The lines of a row that has too few fields yet."""

    def __init__(self, delimiter: str, width: int) -> None:
        self.delimiter = delimiter
        self.width = width
        self.lines: list[Line] = []
        self.count = 0
        self.size = 0

    def add(self, line: Line, count: int) -> Iterator[RawRow]:
        too_much = self.size + len(line.text) > LINE_LIMIT or len(self.lines) == JOIN_LIMIT
        if self.lines and (too_much or self.count + count - 1 > self.width):
            yield from self.give_up()
            if not line.text.strip():
                return
        self.count += count - 1 if self.lines else count
        self.size += len(line.text)
        self.lines.append(line)
        if self.count == self.width:
            text = "\n".join(part.text for part in self.lines)
            yield RawRow(self.lines[0].number, text, text.split(self.delimiter), line.fault or "joined")
            self._clear()

    def give_up(self) -> Iterator[RawRow]:
        if self.lines:
            yield RawRow(self.lines[0].number, "\n".join(part.text for part in self.lines), None, "truncated")
            self._clear()

    def _clear(self) -> None:
        self.lines, self.count, self.size = [], 0, 0
