"""Files that only we can read, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_file(file: Path) -> Iterator[Path]:
    """The path of an empty file, to be filled in the block, which gets the name of `file` at its end.

    A failure leaves none of it, a kill none of that name. Raises OSError where it cannot be written.
    """
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600, exist_ok=False)
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
