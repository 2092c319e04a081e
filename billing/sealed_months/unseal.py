"""Loading the rows of a sealed month back, which is sealed no more then."""

from __future__ import annotations

from datetime import date

import structlog
from django.db import transaction

from billing.models import SealedMonth
from billing.sealed_months import folder, load, object_storage
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import KINDS
from billing.sealed_months.verify import disposable_digests
from clusters.month_file_fetches import files_fetched_first
from portal.core.locks import Work, alone

log = structlog.get_logger(__name__)


@files_fetched_first
def unseal_month(*, month: date) -> dict[str, int]:
    """Load what the database lacks of a month, as it was sealed, and delete its files; rows by kind.

    Files of a month that was ever dropped get another name instead. Killed before its end, the month is still sealed,
    or its files are left, which the next call takes away. Raises SealError, as it does of a month that is not sealed
    and has no files, and so at a second call.
    """
    with alone(Work.SEALING) as ours:
        if not ours:
            raise SealError("busy")
        loaded = dict.fromkeys((kind.name for kind in KINDS), 0)
        with transaction.atomic():
            row = SealedMonth.objects.select_for_update().filter(month=month).first()
            if row is not None:
                digests = disposable_digests(row)
                loaded = load.load(row)
                row.delete()
            elif is_left(month):
                digests = disposable_digests()
            else:
                raise SealError("not-sealed", month=f"{month:%Y-%m}")
        try:
            object_storage.remove(month, digests)
        except SealError as error:
            log.warning("objects of an unsealed month left", month=f"{month:%Y-%m}", reason=str(error))
        folder.remove(month, digests)
        return loaded


def is_left(month: date) -> bool:
    """Whether there are files of a month that is not sealed here."""
    return folder.exists(month) or bool(object_storage.disposable(month, disposable_digests()))
