"""`sacct --json`: the rows of slurmdbd as slurmrestd gives them, in a file; plain or gzip.

The file is split into its jobs as it is read, so that its size does not matter.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from clusters.connectors.base import BadRow, ConnectorError, Reading, Row, UsageFact
from clusters.connectors.files import check_same, opened
from clusters.connectors.mig import OwnShares
from clusters.connectors.slurm import decode, faults
from clusters.connectors.slurm.json_stream import LARGEST, Splitter, TooLongError
from clusters.connectors.slurm.rows import RowReader
from portal.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

COMMAND = "sacct --json --allusers --duplicates --starttime 2026-01-01"
_BLOCK = 2**18


class FileJob(decode.Job, gc=False):
    steps: list[msgspec.Raw] | None = None


class SacctJson:
    """One file that looks like `sacct --json`. `reading` is filled while `rows()` is consumed."""

    def __init__(self, path: Path, seen: os.stat_result, shares: OwnShares) -> None:
        self.reading = Reading()
        self._path = path
        self._seen = seen
        self._shares = shares

    def rows(self) -> Iterator[Row]:
        """Every job in the order of the file, as a fact or with the reason why not; steps are counted only.

        Memory is bounded by the largest job. May be called again, and then reads again; `reading` starts anew.
        Raises `ConnectorError` if sacct itself says that it failed, or if the file changes meanwhile.
        """
        reading = self.reading
        reading.proves_until, reading.steps = None, 0
        reading.notes.clear()
        reader = RowReader(reading, shares=self._shares)
        jobs: decode.Reader[FileJob] = decode.Reader(FileJob)
        clusters: dict[str, None] = {}
        with opened(self._path) as (stream, file):
            check_same(self._path, file, self._seen)
            splitter = Splitter()
            for piece in _pieces(stream, splitter):
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
                yield BadRow(code="unfinished-job", raw=_shown(splitter.rest))
            check_same(self._path, file, self._seen)
        self._check_end(splitter)
        reader.finish()
        if len(clusters) > 1:
            names = excerpt(", ".join(clusters))
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
        if not splitter.has_jobs:
            raise ConnectorError("sacct-no-jobs", retry=False, file=self._path.name, command=COMMAND)
        try:
            errors = decode.envelopes.read(splitter.around).errors or []
        except ValueError:
            errors = []
        failures = [fault for fault in errors if fault.error_number != faults.EMPTY_RESULT]
        if failures:
            text = excerpt(" ".join((failures[0].description or failures[0].error or "").split()))
            raise ConnectorError("sacct-failed", retry=False, file=self._path.name, words=text)


def open_export(path: str | Path, *, shares: OwnShares = ()) -> SacctJson:
    """Checks what would refuse the file whole. Raises `ConnectorError(retry=False)` with a sentence."""
    path = Path(path)
    with opened(path) as (stream, file):
        seen = os.fstat(file.fileno())
        start = stream.read(_BLOCK).removeprefix(b"\xef\xbb\xbf").lstrip()
        if not start:
            raise ConnectorError("file-empty", retry=False, file=path.name)
        if not start.startswith(b"{"):
            raise ConnectorError("sacct-not-json", retry=False, file=path.name, command=COMMAND)
        while stream.read(2**20):  # a broken archive is found out here, not in the middle of an import
            pass
    return SacctJson(path, seen, shares)


def _pieces(stream: BinaryIO, splitter: Splitter) -> Iterator[bytes]:
    try:
        while block := stream.read(_BLOCK):
            yield from splitter.feed(block)
    except TooLongError:
        raise ConnectorError("sacct-job-too-large", retry=False, mebibytes=LARGEST // 2**20) from None
    except decode.NotJsonError:
        raise ConnectorError("sacct-brackets", retry=False) from None
    splitter.end()


def _shown(rest: bytes) -> str:
    return rest[:10_000].decode("utf-8", "backslashreplace")
