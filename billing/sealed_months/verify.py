"""Whether the files of sealed months are as they were sealed: by their digests, and each that is not by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from django.conf import settings

from billing.models import SealedFile, SealedMonth
from billing.proof.checks import Check
from billing.sealed_months.folder import sha256
from portal.core.audit.models import AuditEntry

NAME = "files of sealed months are as they were sealed"


def prove_files() -> Check:
    """Of all sealed months; nothing is broken where there are none."""
    return Check(NAME, [text for _, text in zip(range(10), _broken(), strict=False)])


def digests_of_history() -> set[str]:
    """SHA-256 of all files that this database has sealed, also of months that are sealed no more."""
    return set(
        AuditEntry.objects.of_table(SealedFile)
        .filter(operation="insert")
        .values_list("after__sha256", flat=True)
    )


def _broken() -> Iterator[str]:
    files = SealedFile.objects.select_related("month").order_by("month__month", "tenant", "kind")
    directory: Path | None = settings.CLUSTERTAB_SEALED_MONTHS
    if directory is not None:
        yield from damages(directory, files.iterator())
    elif months := SealedMonth.objects.count():
        yield f"SEALED_MONTHS_DIRECTORY is not set: the files of {months:,} sealed months are not looked at"


def damages(directory: Path, files: Iterable[SealedFile]) -> Iterator[str]:
    """What is wrong with each file that is missing, cut, or other than it was."""
    for file in files:
        try:
            size, digest = (directory / file.path).stat().st_size, sha256(directory / file.path)
        except FileNotFoundError:
            yield f"{file.path} is missing"
        except OSError as error:
            yield f"{file.path} cannot be read: {error.strerror}"
        else:
            if size != file.bytes:
                yield f"{file.path} has {size:,} of {file.bytes:,} bytes"
            elif digest != file.sha256:
                yield f"{file.path} was changed: its SHA-256 is another one"
