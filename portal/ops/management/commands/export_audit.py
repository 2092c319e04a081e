"""`export_audit FILE [--after N]`: the history of changes as signed lines, behind those that the file has already."""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from django.core.management.base import CommandParser

from billing.documents import signing
from portal.core.vault import VaultError
from portal.ops import audit_lines
from portal.ops.audit_lines import Position
from portal.ops.cli import Answer, BadInputError, OperatorCommand, RefusedError

LONGEST = 64 << 20  # bytes of one line
TAIL = 64 << 10  # bytes that are read from the end at first


class Command(OperatorCommand):
    help = "Append the history of changes to a file, as signed lines of JSON in the order of commits."
    refusals: ClassVar[tuple[type[Exception], ...]] = (VaultError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument(
            "--after", metavar="N", type=int, help="of an empty file: begin behind the commit of this number"
        )

    def answer(self, **options: Any) -> Answer:
        path: Path = options["file"]
        try:
            with path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                behind = _position(path, file, options["after"])
                count, last = _append(file, behind)
        except BlockingIOError as error:
            raise RefusedError(f"Another export writes to {path}.") from error
        except OSError as error:
            raise RefusedError(f"{path} cannot be written: {error.strerror}.") from error
        data = {"file": path.name, "lines": count, "commit": last.commit}
        return Answer(data, f"{path}: {count} more changes, up to commit {last.commit}.")


def _position(path: Path, file: BinaryIO, after: int | None) -> Position:
    """Behind the last whole line; what a kill left of another one is cut off."""
    line = _last_line(file)
    if not line:
        if after is not None and after < 0:
            raise BadInputError("--after is the number of a commit: 0 or more.")
        return Position(after or 0)
    if after is not None:
        raise BadInputError(f"{path} has lines already, and goes on behind the last: leave --after out.")
    try:
        return audit_lines.position_of(line)
    except ValueError as error:
        raise RefusedError(f"{path} does not end with a line of the history: name another file.") from error


def _last_line(file: BinaryIO) -> bytes:
    size, span = file.seek(0, os.SEEK_END), TAIL
    while True:
        begin = max(0, size - span)
        file.seek(begin)
        content = file.read(size - begin)
        whole = content.rfind(b"\n") + 1
        line_begin = content.rfind(b"\n", 0, max(0, whole - 1)) + 1
        if begin == 0 or line_begin:
            break
        if span > LONGEST:
            raise RefusedError("The last line is longer than any of the history: name another file.")
        span *= 4
    if begin + whole < size:
        file.truncate(begin + whole)
    return content[line_begin:whole]


def _append(file: BinaryIO, behind: Position) -> tuple[int, Position]:
    key = signing.current_key(moment=datetime.now(UTC).replace(microsecond=0))
    count, line = 0, b""
    for line in audit_lines.lines(behind=behind, key=key):
        file.write(line)
        count += 1
    file.flush()
    os.fsync(file.fileno())
    return count, audit_lines.position_of(line) if line else behind
