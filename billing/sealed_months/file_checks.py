"""The night's look at the files of sealed months: whether all are there, and one month's digests in turn."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from itertools import islice
from pathlib import Path

from django.db.models.functions import Coalesce

from billing.models import SealedMonth
from billing.sealed_months import folder, object_storage, verify
from billing.sealed_months.errors import SealError
from portal.sentences import sentence

MOST = 10  # damages that are kept of a month


def check_month(*, month: date, moment: datetime) -> list[str]:
    """Compare the digests of a month's files, keep which are not as they were sealed, and say so. Again, the same.

    Raises SealError where no directory is set, or the month is not sealed.
    """
    row = SealedMonth.objects.filter(month=month).first()
    if row is None:
        raise SealError("not-sealed", month=f"{month:%Y-%m}")
    folder.directory()
    files = verify.files_of(row)
    damages = list(islice(verify.lasting_damages(files, mend=True), MOST))
    # Not by the row: it may have been unsealed meanwhile.
    SealedMonth.objects.filter(pk=row.pk).update(damages=damages, checked_at=moment)
    return damages


def check_at_night(*, moment: datetime) -> list[str]:
    """Look whether all files are there in full, and check the month that was checked longest ago; what is wrong.

    Months of which something is wrong are checked, too, so that files that were brought back are known. Once a UTC day,
    whatever somebody checks by hand; killed, the next call does what is left.
    """
    tonight = moment.date()
    rows = list(
        SealedMonth.objects.annotate(since=Coalesce("checked_at", "sealed_at"))
        .order_by("since", "month")
        .prefetch_related("files")
    )
    if not rows or any(row.night == tonight for row in rows):
        return []
    try:
        directory, stored = folder.directory(), object_storage.sizes()
        suspect = [row for row in rows[1:] if row.damages or _lacks_files(row, directory, stored)]
        texts = [text for row in (*suspect, rows[0]) for text in check_month(month=row.month, moment=moment)]
    except SealError as error:
        texts = [sentence(error)]
        SealedMonth.objects.exclude(damages=texts).update(damages=texts)
        return texts
    SealedMonth.objects.filter(pk=rows[0].pk).update(night=tonight)
    return texts


def _lacks_files(row: SealedMonth, directory: Path, stored: Mapping[str, int] | None) -> bool:
    """Whether one is missing or cut: cheap to see, of all months each night."""
    return any(
        (_size(directory / file.path) if stored is None else stored.get(object_storage.name(file)))
        != file.bytes
        for file in row.files.all()
    )


def _size(path: Path) -> int | None:
    """In bytes; None where the file cannot be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return None
