"""Whether the files of sealed months are as they were sealed: by their digests, and each that is not by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from django.conf import settings

from billing.models import SealedFile, SealedMonth
from billing.proof.checks import Check
from billing.sealed_months import folder, object_storage
from billing.sealed_months.errors import SealError
from clusters.month_file_fetches import fetch_first
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
    months = SealedMonth.objects.order_by("month")
    if settings.CLUSTERTAB_SEALED_MONTHS is not None:
        try:
            for row in months:  # at once: no cursor is open while a store is asked
                yield from lasting_damages(files_of(row))
        except SealError as error:
            yield f"{error}"
    elif count := months.count():
        yield f"SEALED_MONTHS_DIRECTORY is not set: the files of {count:,} sealed months are not looked at"


def lasting_damages(files: Iterable[SealedFile], *, mend: bool = False) -> Iterator[str]:
    """What is wrong with each file where it lasts: in the bucket, or in the directory if no bucket is set.

    To `mend` is to send what the bucket lacks anew. Raises SealError where the store is away.
    """
    if object_storage.is_set():
        yield from object_storage.damages(files, mend=mend)
    else:
        directory = folder.directory()
        yield from filter(None, (folder.damage(directory, file) for file in files))


def damages(directory: Path, files: Iterable[SealedFile]) -> Iterator[str]:
    """What is wrong with each file that is to be read, here and, where a bucket is set, there.

    What the directory lacks or has otherwise is fetched first, before the transaction if that is possible. Raises
    SealError where it cannot be done, and FilesNeededError as `month_file_fetches` says.
    """
    files = list(files)
    for place, file in enumerate(files):
        damage = folder.damage(directory, file)
        if damage is not None and object_storage.is_set():
            fetch_first(file.sha256, partial(_fetch, directory, files[place:]))
            damage = object_storage.fetch(directory, file)
        if damage is not None:
            yield damage


def _fetch(directory: Path, files: Iterable[SealedFile]) -> SealError | None:
    """Why the store did not answer; None where it did, be it that it has no such file."""
    try:
        for file in files:
            if folder.damage(directory, file) is not None:
                object_storage.fetch(directory, file)
    except SealError as error:
        return error
    return None
