"""The directory of a sealed month: written under another name, then renamed, so that it is whole or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from django.conf import settings

from billing.sealed_months.errors import SealError


def directory() -> Path:
    """Where sealed months are. Raises SealError where the operator has named no directory."""
    path: Path | None = settings.CLUSTERTAB_SEALED_MONTHS
    if path is None:
        raise SealError("no-directory")
    return path


@contextmanager
def scratch(month: date) -> Iterator[Path]:
    """An empty directory for files of the month, beside where they will be; gone at the end of the block.

    What earlier runs have left that were killed goes first. Each run has a name of its own: the program of one that was
    killed may still write for a moment.
    """
    directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in directory().glob(f".{month:%Y-%m}.*"):
        shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f".{month:%Y-%m}.", dir=directory()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def publish(files: Path, month: date) -> None:
    """Give the directory its name, on the disk before anything says that the month is sealed.

    A directory of that name belongs to no sealed month: its run was killed before it committed.
    """
    target = directory() / f"{month:%Y-%m}"
    for path in (*files.rglob("*"), files):
        sync(path)
    shutil.rmtree(target, ignore_errors=True)
    files.rename(target)
    sync(target.parent)


def remove(month: date) -> None:
    """Delete the files of a month that is sealed no more."""
    shutil.rmtree(directory() / f"{month:%Y-%m}", ignore_errors=True)


def sync(path: Path) -> None:
    """Have what the path names on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
