"""Asking the program that writes and reads Parquet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from portal.excerpt import excerpt

ROOT = Path(__file__).parents[2]


class ParquetError(Exception):
    """A file of Parquet cannot be written or read; the message says why, in DuckDB's words."""


class UsageFilter(NamedTuple):
    """Records of clusters that held something, or waited, in [since, until), epoch seconds."""

    clusters: tuple[int, ...]
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Program:
    """The running program, and the file that rows are handed over in."""

    process: subprocess.Popen[bytes]
    rows: Path

    def write(self, file: Path, columns: dict[str, str]) -> str:
        """Write what stands in `rows` as Parquet; the SHA-256 of the rows as read back, which `rows` has then."""
        return str(self._ask(act="write", rows=str(self.rows), file=str(file), columns=columns)["sha256"])

    def read(self, file: Path, *, within: tuple[str, int, int] | None = None) -> None:
        """Put the rows of a file into `rows`: all, or those whose column is `within` (after, last]."""
        self._ask(act="read", rows=str(self.rows), file=str(file), within=within)

    def read_jobs(
        self,
        files: Mapping[str, Sequence[Path]],
        columns: Mapping[str, Sequence[str | None]],
        *,
        rated: Sequence[tuple[int, int]] | None = None,
        **chosen: Any,
    ) -> None:
        """Put jobs, their runs and what was rated of them into `rows`, as `parquet_sql.read_jobs` says."""
        paths = {kind: [str(file) for file in some] for kind, some in files.items()}
        self._ask(act="read_jobs", rows=str(self.rows), files=paths, columns=columns, rated=rated, **chosen)

    def pick(self, files: Iterable[Path], column: str) -> None:
        """Replace the numbers in `rows` by the rows of files of one kind that have one of them in the column."""
        self._ask(act="pick", rows=str(self.rows), files=[str(file) for file in files], column=column)

    def count_usage(self, files: Iterable[Path], usage: UsageFilter) -> int:
        """How many records of the files are of that usage."""
        paths = [str(file) for file in files]
        return int(self._ask(act="count_usage", files=paths, **usage._asdict())["records"])

    def read_usage(self, files: Iterable[Path], usage: UsageFilter) -> None:
        """Put the records of the files that are of that usage into `rows`."""
        paths = [str(file) for file in files]
        self._ask(act="read_usage", rows=str(self.rows), files=paths, **usage._asdict())

    def find(self, file: Path, *, cluster: int) -> None:
        """Replace the source keys in `rows` by the cluster's records that have them."""
        self._ask(act="find", rows=str(self.rows), file=str(file), cluster=cluster)

    def sums(self, file: Path, select: str) -> list[list[str | None]]:
        """What the statement comes to that reads `FROM file`."""
        return cast("list[list[str | None]]", self._ask(act="sums", file=str(file), select=select)["rows"])

    def _ask(self, **request: Any) -> dict[str, Any]:
        entry, answers = cast("IO[bytes]", self.process.stdin), cast("IO[bytes]", self.process.stdout)
        try:
            entry.write(json.dumps(request).encode() + b"\n")
            entry.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = b""
        answer = (
            json.loads(line) if line else {"error": "the program that writes and reads Parquet has ended"}
        )
        if "error" in answer:
            raise ParquetError(excerpt(answer["error"]))
        return cast("dict[str, Any]", answer)


@contextmanager
def program(directory: Path) -> Iterator[Program]:
    """The program while the block lasts; what it needs beside memory is in the directory, and goes with it."""
    rows = directory / "rows.csv"
    environ = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    command = [sys.executable, "-m", f"{__package__}.parquet_sql", str(directory)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environ | {"PYTHONUTF8": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            yield Program(process, rows)
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # what it did not read any more, where somebody killed it
                cast("IO[bytes]", process.stdin).close()
            rows.unlink(missing_ok=True)
