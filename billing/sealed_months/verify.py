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


def disposable_digests(row: SealedMonth | None = None) -> set[str]:
    """SHA-256 of files that this database has sealed, of the month `row` too, and may do without.

    Not of a month that was ever dropped: a backup from then has none of its rows, and needs these files.
    """
    inserted = AuditEntry.objects.of_table(SealedFile).filter(operation="insert")
    sealed = set(inserted.values_list("after__month_id", "after__sha256"))
    if row is not None:
        sealed.update(row.files.values_list("month_id", "sha256"))
    dropped = _ever_dropped()
    if row is not None and row.dropped_at is not None:
        dropped.add(row.pk)
    return {digest for _, digest in sealed} - {digest for month, digest in sealed if month in dropped}


def was_dropped(row: SealedMonth) -> bool:
    """Whether the rows of the month stand in its files alone, or ever did."""
    return row.dropped_at is not None or row.pk in _ever_dropped()


def _ever_dropped() -> set[int]:
    """The numbers of such sealed months, also of those that are sealed no more, from the history."""
    entries = AuditEntry.objects.of_table(SealedMonth).filter(after__dropped_at__gt="")
    return {int(key) for key in entries.values_list("key", flat=True)}


def files_of(row: SealedMonth) -> list[SealedFile]:
    """Those of a month, each tenant's together."""
    return list(row.files.select_related("month").order_by("tenant", "kind"))


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
