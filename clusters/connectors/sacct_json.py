"""`sacct --json`: the rows of slurmdbd as slurmrestd gives them, in a file; plain or gzip.

The file is split into its jobs as it is read, so that its size does not matter.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from clusters.connectors.base import BadRow, ConnectorError, Reading, Row, UsageFact
from clusters.connectors.sacct import check_same, opened
from clusters.connectors.slurm import decode, faults
from clusters.connectors.slurm.rows import RowReader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import BinaryIO

COMMAND = "sacct --json --allusers --duplicates --starttime 2026-01-01"
LARGEST = 64 * 2**20  # bytes of one job with its steps
_BLOCK = 2**18
_QUOTE = ord('"')
_OPENING = (b"{", b"[")
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_AROUND = 2**20  # bytes that are kept of what stands around the jobs
_CUT = "The file ends within this job or before its end: copy or export it again."


class FileJob(decode.Job, gc=False):
    steps: list[msgspec.Raw] | None = None


class SacctJson:
    """One file that looks like `sacct --json`. `reading` is filled while `rows()` is consumed."""

    def __init__(self, path: Path, seen: os.stat_result) -> None:
        self.reading = Reading()
        self._path = path
        self._seen = seen

    def rows(self) -> Iterator[Row]:
        """Every job in the order of the file, as a fact or with the reason why not; steps are counted only.

        Memory is bounded by the largest job. May be called again, and then reads again; `reading` starts anew.
        Raises `ConnectorError` if sacct itself says that it failed, or if the file changes meanwhile.
        """
        reading = self.reading
        reading.proves_until, reading.steps = None, 0
        reading.notes.clear()
        reader = RowReader(reading)
        jobs: decode.Reader[FileJob] = decode.Reader(FileJob)
        clusters: dict[str, None] = {}
        with opened(self._path) as (stream, file):
            check_same(self._path, file, self._seen)
            splitter = Splitter(stream)
            for piece in splitter.jobs():
                try:
                    job = jobs.read(piece)
                except (decode.OtherShapeError, decode.NotJsonError) as error:
                    yield reader.unread(piece, str(error))
                    continue
                reading.steps += len(job.steps or ())
                if job.cluster and len(clusters) < 10:
                    clusters[job.cluster] = None
                row = reader.read(job)
                if row is not None:
                    self._prove(row)
                    yield row
            if splitter.rest:
                yield BadRow(code="unfinished", reason=_CUT, raw=_shown(splitter.rest))
            check_same(self._path, file, self._seen)
        self._check_end(splitter)
        reader.finish()
        if len(clusters) > 1:
            names = ", ".join(clusters)
            reading.notes.append(
                f"The rows are of several clusters ({names}): export each to a file of its own."
            )

    def _prove(self, row: Row) -> None:
        if isinstance(row, UsageFact):
            proved = row.ended or row.seen_until or 0
            if proved > (self.reading.proves_until or 0):
                self.reading.proves_until = proved

    def _check_end(self, splitter: Splitter) -> None:
        if splitter.rest:
            return
        if not splitter.found:
            raise ConnectorError(
                f'{self._path.name} has no "jobs" in it: make it with {COMMAND}', retry=False
            )
        try:
            errors = decode.envelopes.read(splitter.around).errors or []
        except ValueError:
            errors = []
        said = [fault for fault in errors if fault.error_number != faults.NOTHING_FOUND]
        if said:
            text = " ".join((said[0].description or said[0].error or "").split())[:120]
            raise ConnectorError(
                f'sacct failed as it wrote {self._path.name} ("{text}"): export it again.', retry=False
            )


def open_export(path: str | Path) -> SacctJson:
    """Checks what would refuse the file whole. Raises `ConnectorError(retry=False)` with a sentence."""
    path = Path(path)
    with opened(path) as (stream, file):
        seen = os.fstat(file.fileno())
        start = stream.read(_BLOCK).removeprefix(b"\xef\xbb\xbf").lstrip()
        if not start:
            raise ConnectorError(f"{path.name} is empty.", retry=False)
        if not start.startswith(b"{"):
            raise ConnectorError(
                f"{path.name} is not JSON. If it is text with columns, leave out --format; else make it with {COMMAND}",
                retry=False,
            )
        while stream.read(2**20):  # a broken archive is found out here, not in the middle of an import
            pass
    return SacctJson(path, seen)


class Splitter:
    """Cuts the objects out of the list "jobs" of a JSON text, or of several texts one after the other.

    After `jobs()`: `around` is the last text without its jobs, `found` whether there was a list of jobs, `rest`
    what follows the last whole job if the text is cut off, else empty.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.around = b""
        self.rest = b""
        self.found = False
        self._stream = stream
        self._depth = 0
        self._key = b""  # the last string of the outermost object: the name of what follows
        self._inside = False  # between the brackets of "jobs"

    def jobs(self) -> Iterator[bytes]:
        """The bytes of each job. Raises `ConnectorError` for one that is larger than 64 MiB."""
        held = b""
        while block := self._stream.read(_BLOCK):
            held = yield from self._cut(held + block)
            if len(held) > LARGEST:
                raise ConnectorError(
                    "A job in this file is larger than 64 MiB: is it a file of sacct?", retry=False
                )
        if self._depth or held.strip():
            self.rest = held or b"{"

    def _cut(self, text: bytes) -> Generator[bytes, None, bytes]:
        """Gives the whole jobs in `text`; returns what has to be read again together with what follows."""
        begin, kept, end = -1, 0, len(text)
        for mark in _MARKS.finditer(text):
            token = mark[0]
            if token == b'"':  # the text ends within a string
                end = mark.start()
                break
            if token[0] == _QUOTE:
                if self._depth == 1:
                    self._key = token
            elif token in _OPENING:
                if self._inside and self._depth == 2:
                    begin = mark.start()
                elif not self._inside and self._open(token, text[kept : mark.end()]):
                    kept = mark.end()
                self._depth += 1
            elif self._close():
                kept = mark.start()
            elif begin >= 0 and self._depth == 2:
                yield text[begin : mark.end()]
                begin = -1
        if begin >= 0:
            self._depth = 2
            return text[begin:]
        if not self._inside:
            self._keep(text[kept:end])
        return text[end:]

    def _open(self, token: bytes, before: bytes) -> bool:
        """Whether what stands around the jobs has been kept up to here."""
        if self._depth == 0:
            self.around = b""
        self._inside = self._depth == 1 and token == b"[" and self._key == b'"jobs"'
        if self._inside:
            self.found = True
            self._keep(before)
        return self._inside

    def _close(self) -> bool:
        """Whether this bracket ends the list of jobs."""
        self._depth -= 1
        if self._depth < 0:
            raise ConnectorError("The file is not JSON: a bracket closes what was never opened.", retry=False)
        ends = self._inside and self._depth == 1
        if ends:
            self._inside = False
        return ends

    def _keep(self, text: bytes) -> None:
        if len(self.around) < _AROUND:
            self.around += text


def _shown(rest: bytes) -> str:
    return rest[:10_000].decode("utf-8", "backslashreplace")
