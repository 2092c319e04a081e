"""The jobs of a JSON text, cut out and read as its bytes come: one job is in memory, not the list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar

from clusters.connectors.slurm import decode
from clusters.connectors.slurm.decode import NotJsonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGEST = 64 * 2**20  # bytes of one job with its steps
AROUND = 16 * 2**20  # bytes that are kept of what stands around the jobs
_QUOTE = ord('"')
_OPENING = (b"{", b"[")
# Groups are atomic, not possessive: `(?:…)*+` matches wrongly before Python 3.11.5, which Debian 12 does not have.
_STRING = rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
_MARKS = re.compile(_STRING + rb'|[{}\[\]"]', re.DOTALL)
_PLAIN = rb'[^"{}\[\]]*+'
_FLAT = _PLAIN + rb"(?>(?:" + _STRING + _PLAIN + rb")*)"
_NEXT = rb'([{}\[\]"])'  # a quote: the text ends within a string
_IN_LIST = re.compile(_FLAT + _NEXT, re.DOTALL)
_NESTED = rb"(?:" + _STRING + rb"|\{" + _FLAT + rb"\}|\[" + _FLAT + rb"\])"
# Passes over what nests no deeper.
_IN_JOB = re.compile(_PLAIN + rb"(?>(?:" + _NESTED + _PLAIN + rb")*)" + _NEXT, re.DOTALL)


class TooLongError(ValueError):
    """One job is larger than may be held."""


class Splitter:
    """Cuts the objects out of the list "jobs" of a JSON text, or of several texts one after the other.

    After `end()`: `around` is the last text without its jobs, `found` whether there was a list of jobs, `texts` how
    many there were, `stray` whether anything but objects and lists stood in a list of jobs, `rest` what follows
    the last whole job if the text is cut off, else empty.
    """

    def __init__(self, *, largest: int = LARGEST) -> None:
        self.around = b""
        self.rest = b""
        self.has_jobs = False
        self.stray = False
        self.texts = 0
        self._largest = largest
        self._buffer = b""  # what has to be seen together with what follows
        self._seen = 0  # bytes of it that were looked at
        self._begun = False  # whether it begins with a job
        self._depth = 0
        self._key = b""  # the last string of the outermost object: the name of what follows
        self._inside = False  # between the brackets of "jobs"

    def feed(self, block: bytes) -> Iterator[bytes]:
        """The bytes of each job that is whole now; consume all of it before the next call.

        Raises `TooLongError`, and `NotJsonError` where brackets do not match.
        """
        text, at, around_from = self._buffer + block, self._seen, 0
        begin = 0 if self._begun else -1
        while mark := self._next(text, at, begin):
            token, place = mark[mark.re.groups], mark.start(mark.re.groups)
            if token == b'"':
                at = place
                break
            at = mark.end()
            if token[0] == _QUOTE:
                if self._depth == 1:
                    self._key = token
            elif token in _OPENING:
                if self._inside and self._depth == 2:
                    begin = place
                elif not self._inside:
                    around_from = self._open(token, text, around_from, place)
                self._depth += 1
            elif self._close():
                around_from = place
            elif begin >= 0 and self._depth == 2:
                yield text[begin:at]
                begin = -1
        else:
            at = len(text)
        self._hold(text, at, begin, around_from)

    def end(self) -> None:
        """There is no more."""
        if self._depth or self._buffer.strip():
            self.rest = self._buffer or b"{"

    def _next(self, text: bytes, at: int, begin: int) -> re.Match[bytes] | None:
        if not self._inside:
            return _MARKS.search(text, at)
        if begin >= 0:
            return _IN_JOB.match(text, at)
        mark = _IN_LIST.match(text, at)
        if text[at : mark.start(1) if mark else len(text)].strip(b" \t\r\n,") or (mark and mark[1] == b'"'):
            self.stray = True
        return mark

    def _hold(self, text: bytes, at: int, begin: int, around_from: int) -> None:
        """Keeps what is needed with the next block, looked at as far as `at`."""
        if not self._inside:
            self._keep(text[around_from:at])
        self._begun = begin >= 0
        self._buffer = text[begin:] if self._begun else text[at:]
        self._seen = at - begin if self._begun else 0
        if len(self._buffer) > self._largest:
            raise TooLongError(f"A job is larger than {self._largest // 2**20} MiB.")

    def _open(self, token: bytes, text: bytes, around_from: int, place: int) -> int:
        """From where on what stands around the jobs has not been kept."""
        if self._depth == 0:
            self.around = b""
            around_from = place if self.texts else around_from
            self.texts += 1
        self._inside = self._depth == 1 and token == b"[" and self._key == b'"jobs"'
        if self._inside:
            self.has_jobs = True
            self._keep(text[around_from : place + 1])
        return around_from

    def _close(self) -> bool:
        """Whether this bracket ends the list of jobs."""
        self._depth -= 1
        if self._depth < 0:
            raise NotJsonError("A bracket closes what was never opened.")
        ends = self._inside and self._depth == 1
        if ends:
            self._inside = False
        return ends

    def _keep(self, text: bytes) -> None:
        if len(self.around) < AROUND:
            self.around += text


T = TypeVar("T")
BLOCK = 2**18  # bytes that are cut at once


class Pieces(Generic[T]):
    """Takes bytes, gives each job to `give`. What is wrong is told by `end`."""

    def __init__(self, reader: decode.Reader[T], give: Callable[[T], None]) -> None:
        self._reader = reader
        self._give = give
        self._splitter = Splitter()
        self._waiting: list[bytes] = []
        self._size = 0
        self._wrong: ValueError | None = None

    @property
    def around(self) -> bytes:
        """The answer without its jobs."""
        return self._splitter.around

    def take(self, piece: bytes) -> bool:
        """Whether more is wanted."""
        self._waiting.append(piece)
        self._size += len(piece)
        return self._size < BLOCK or self._cut()

    def end(self) -> ValueError | None:
        """There is no more: None if it was one whole JSON text with jobs of the known shape, as far as they go."""
        if self._wrong is None and self._cut():
            self._splitter.end()
            if self._splitter.rest or self._splitter.texts > 1:
                self._wrong = decode.NotJsonError("The body is no JSON, or it breaks off.")
            elif self._splitter.stray:
                self._wrong = decode.OtherShapeError("Not every job is an object")
        return self._wrong

    def _cut(self) -> bool:
        block = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        try:
            for job in self._splitter.feed(block):
                self._give(self._reader.read(job))
        except TooLongError as error:
            self._wrong = decode.OtherShapeError(str(error))
        except (decode.NotJsonError, decode.OtherShapeError) as error:
            self._wrong = error
        return self._wrong is None
