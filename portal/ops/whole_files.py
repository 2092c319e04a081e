"""Files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from portal.ops.cli import RefusedError


@contextmanager
def private_file(file: Path, *, mode: int = 0o600) -> Iterator[Path]:
    """The path of an empty file that only we can read, to be filled in the block, which gets the name of `file` then.

    A failure leaves none of it, a kill none of that name. Raises OSError where it cannot be written.
    """
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=mode, exist_ok=False)
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to be written in the block, which gets the name of `path` at its end.

    What is no file, such as a terminal or a pipe, is written as it is, and a link stays one. Raises RefusedError, with
    the reason, where it cannot be written.
    """
    is_file = path.is_file() or not path.exists()
    try:
        written = private_file(path.resolve(), mode=0o666) if is_file else nullcontext(path)
        with written as part, part.open("wb") as file:
            yield file
    except OSError as error:
        raise RefusedError(f"{path} cannot be written: {error.strerror}.") from error
