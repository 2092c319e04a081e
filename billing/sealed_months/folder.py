"""The directory of a sealed month: written under another name, then renamed, so that it is whole or not there."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import date
from itertools import count
from pathlib import Path

from django.conf import settings

from billing.models import SealedFile
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


def publish(files: Path, month: date, digests: Collection[str]) -> None:
    """Give the directory its name, on the disk before anything says that the month is sealed.

    A directory of that name belongs to no month that is sealed here, and gives way as `remove` says.
    """
    target = _of(month)
    for path in (*files.rglob("*"), files):
        sync(path)
    remove(month, digests)
    files.rename(target)
    sync(target.parent)


def exists(month: date) -> bool:
    """Whether there are files of the month, sealed or not."""
    return _of(month).exists()


def remove(month: date, digests: Collection[str]) -> None:
    """Delete the files of a month if the SHA-256 of each is among `digests`; else give their directory another name.

    A database that was restored does not know what was sealed since its backup, and one that will be may need what it
    has dropped before: that may be the only archive there is.
    """
    target = _of(month)
    if all(sha256(path) in digests for path in target.rglob("*") if not path.is_dir()):
        shutil.rmtree(target, ignore_errors=True)
    else:
        names = (target.with_name(f"{target.name}.set-aside-{number}") for number in count(1))
        target.rename(next(path for path in names if not path.exists()))


def set_aside(month: date) -> list[str]:
    """The directories of the month that were given another name."""
    return sorted(path.name for path in directory().glob(f"{month:%Y-%m}.set-aside-*"))


def damage(directory: Path, file: SealedFile) -> str | None:
    """What is wrong with a file there that is missing, cut, or other than it was sealed."""
    path = directory / file.path
    try:
        size, digest = path.stat().st_size, sha256(path)
    except FileNotFoundError:
        return f"{file.path} is missing"
    except OSError as error:
        return f"{file.path} cannot be read: {error.strerror}"
    if size != file.bytes:
        return f"{file.path} has {size:,} of {file.bytes:,} bytes"
    return f"{file.path} was changed: its SHA-256 is another one" if digest != file.sha256 else None


def sha256(path: Path) -> str:
    """In hexadecimal digits, of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _of(month: date) -> Path:
    return directory() / f"{month:%Y-%m}"


def sync(path: Path) -> None:
    """Have what the path names on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
