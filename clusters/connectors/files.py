"""Files of accounting as every reader of them opens them: plain or gzip, unchanged meanwhile, line by line.

Nothing is lost: every line is given, whole or in pieces. Memory is bounded by `LINE_LIMIT`, whatever the file.
"""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from contextlib import contextmanager
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from clusters.connectors.base import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

_GZIP = b"\x1f\x8b"
_OTHER_FORMATS = {
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"PK\x03\x04": "a zip archive",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


FREELY_INFLATED = 64 << 20  # bytes
MOST_INFLATED = 200  # times its own size; accounting text is inflated ten to forty times

LINE_LIMIT = 2**20  # characters of one row, and bytes of one line
_BLOCK = 2**15


class Line(NamedTuple):
    number: int
    text: str
    fault: str  # "too-long": a piece of one; "unfinished": the file ends within it


class Block(NamedTuple):
    """Lines in a row; or, with a fault of `Line`, one line or a piece of one."""

    number: int  # of its first line
    texts: list[str]
    fault: str

    def after(self, number: int) -> Block:
        """Without the lines up to that one."""
        if number < self.number:
            return self
        return Block(number + 1, self.texts[number + 1 - self.number :], self.fault)

    def lines(self) -> Iterator[Line]:
        for number, text in enumerate(self.texts, self.number):
            if self.fault == "unfinished" or (len(text) <= LINE_LIMIT and not self.fault):
                yield Line(number, text, self.fault)
                continue
            for begin in range(0, len(text), LINE_LIMIT):
                yield Line(number, text[begin : begin + LINE_LIMIT], "too-long")


def blocks(stream: BinaryIO) -> Iterator[Block]:
    """All lines as text, ended by LF or CRLF alone: UTF-8, other bytes as `\\xNN`, NUL as `\\x00`."""
    number, rest, cut = 1, stream.read(3).removeprefix(codecs.BOM_UTF8), False
    while data := stream.read(_BLOCK):
        whole, newline, rest = (rest + data).rpartition(b"\n")
        if newline:
            texts = _decoded(whole + newline).split("\n")
            del texts[-1]
            if cut:
                yield Block(number, texts[:1], "too-long")
                del texts[0]
                number, cut = number + 1, False
            yield Block(number, texts, "")
            number += len(texts)
        while len(rest) > LINE_LIMIT:
            yield Block(number, [_decoded(rest[:LINE_LIMIT])], "too-long")
            rest, cut = rest[LINE_LIMIT:], True
    if rest:
        yield Block(number, [_decoded(rest)], "too-long" if cut else "unfinished")


def physical_lines(stream: BinaryIO) -> Iterator[Line]:
    """The lines of `blocks` one by one."""
    for block in blocks(stream):
        yield from block.lines()


def _decoded(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    if "\0" in text:  # no database stores it
        text = text.replace("\0", "\\x00")
    return (
        text.replace("\r\n", "\n") if "\r" in text else text
    )  # one character is looked for many times faster


def check_same(path: Path, file: BinaryIO, then: os.stat_result) -> None:
    """Raises `ConnectorError(retry=True)` if the file is no longer the one that was opened first."""
    now = os.fstat(file.fileno())
    if (now.st_ino, now.st_size, now.st_mtime_ns) != (then.st_ino, then.st_size, then.st_mtime_ns):
        raise ConnectorError("file-changed", retry=True, file=path.name)


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The uncompressed bytes, and the file that they are from; what fails is a `ConnectorError`."""
    try:
        if not S_ISREG(path.stat().st_mode):  # opening a pipe would wait for a writer
            raise ConnectorError("file-irregular", retry=False, file=path.name)
        with path.open("rb") as file:
            start = file.read(6)
            file.seek(0)
            for magic, what in _OTHER_FORMATS.items():
                if start.startswith(magic):
                    raise ConnectorError("file-format", retry=False, file=path.name, format=what)
            if start.startswith(_GZIP):
                with gzip.GzipFile(fileobj=file, mode="rb") as stream:
                    yield _Inflated(stream, path), file  # type: ignore[misc]  # reads like a BinaryIO
            else:
                yield file, file
    except FileNotFoundError as error:
        raise ConnectorError("file-missing", retry=False, path=path) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConnectorError("file-gzip-broken", retry=False, file=path.name, reason=error) from error
    except OSError as error:
        raise ConnectorError(
            "file-unreadable", retry=False, file=path.name, reason=error.strerror or error
        ) from error


class _Inflated:
    """An archive as it is read; refused where it holds far more than accounting could have been pressed into it."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self._stream, self._path = stream, path
        self._most = max(FREELY_INFLATED, MOST_INFLATED * path.stat().st_size)

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if self._stream.tell() > self._most:
            raise ConnectorError("file-inflates", retry=False, file=self._path.name, times=MOST_INFLATED)
        return data
