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

TAIL = 64 << 10  # bytes that are read from the end at first
BEGINNING = b'{"after":'  # of each line: names are in order


class Command(OperatorCommand):
    help = "Append the history of changes to a file, as signed lines of JSON in the order of commits."
    refusals: ClassVar[tuple[type[Exception], ...]] = (VaultError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument(
            "--after",
            metavar="N",
            type=int,
            help="begin behind the commit of this number, where the file is empty",
        )

    def answer(self, **options: Any) -> Answer:
        path: Path = options["file"]
        if options["after"] is not None and options["after"] < 0:
            raise BadInputError("--after is the number of a commit: 0 or more.")
        try:
            with open(path, "a+b", opener=_for_the_group) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                behind = _position(path, file, Position(options["after"] or 0))
                count, last = _append(file, behind)
        except BlockingIOError as error:
            raise RefusedError(f"Another export writes to {path}.") from error
        except OSError as error:
            raise RefusedError(f"{path} cannot be written: {error.strerror}.") from error
        data = {"file": path.name, "lines": count, "commit": last.commit}
        return Answer(data, f"{path}: {count} more changes, up to commit {last.commit}.")


def _for_the_group(path: str, flags: int) -> int:
    """The history names people: a new file is for its owner and their group, whatever the umask allows."""
    return os.open(path, flags, 0o640)


def _position(path: Path, file: BinaryIO, after: Position) -> Position:
    """Behind the last whole line, or `after` where there is none; what a kill left of another one is cut off.

    Raises RefusedError, before anything is changed, for a file that is not of this history.
    """
    line, end = _last_line(path, file)
    if line:
        try:
            behind = audit_lines.position_of(line)
        except ValueError as error:
            raise RefusedError(
                f"{path} does not end with a line of the history: name another file."
            ) from error
        if after > behind:
            raise BadInputError(
                f"{path} ends with commit {behind.commit}, so nothing can begin after {after.commit}."
            )
        if not audit_lines.is_in_history(line):
            raise RefusedError(
                f"{path} ends with commit {behind.commit}, which this history does not have: an older backup was "
                "restored. Begin a new file."
            )
    elif after.commit > audit_lines.newest_commit():
        raise BadInputError(f"This history has no commit {after.commit} yet.")
    else:
        behind = after
    file.truncate(end)
    return behind


def _last_line(path: Path, file: BinaryIO) -> tuple[bytes, int]:
    """The last whole line, and where it ends; nothing and 0 where there is none."""
    size, span = file.seek(0, os.SEEK_END), TAIL
    while True:
        begin = max(0, size - span)
        file.seek(begin)
        content = file.read(size - begin)
        end = content.rfind(b"\n") + 1
        line_begin = content.rfind(b"\n", 0, max(0, end - 1)) + 1
        if begin == 0 or line_begin:
            break
        if span > audit_lines.LONGEST:
            raise RefusedError(
                f"The last line of {path} is longer than any of the history: name another file."
            )
        span *= 4
    if not end and content and not content.startswith(BEGINNING):
        raise RefusedError(f"{path} does not end with a line of the history: name another file.")
    return content[line_begin:end], begin + end


def _append(file: BinaryIO, behind: Position) -> tuple[int, Position]:
    key = signing.current_key(moment=datetime.now(UTC).replace(microsecond=0))
    count, line = 0, b""
    for line in audit_lines.lines(behind=behind, key=key):
        file.write(line)
        count += 1
    file.flush()
    os.fsync(file.fileno())
    return count, audit_lines.position_of(line) if line else behind
