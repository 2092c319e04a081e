"""Loading the rows of a sealed month back, which is sealed no more then."""

from __future__ import annotations

from datetime import date

from django.db import transaction

from billing.models import SealedMonth
from billing.sealed_months import folder, load
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import KINDS
from billing.sealed_months.verify import digests_of_history
from portal.core.locks import Work, alone


def unseal_month(*, month: date) -> dict[str, int]:
    """Load what the database lacks of a month, as it was sealed, and delete its files; rows by kind.

    Killed before its end, the month is still sealed, or its files are left, which the next call deletes. Raises
    SealError, as it does of a month that is not sealed and has no files, and so at a second call.
    """
    with alone(Work.SEALING) as ours:
        if not ours:
            raise SealError("busy")
        digests, loaded = digests_of_history(), dict.fromkeys((kind.name for kind in KINDS), 0)
        with transaction.atomic():
            row = SealedMonth.objects.select_for_update().filter(month=month).first()
            if row is not None:
                digests.update(row.files.values_list("sha256", flat=True))
                loaded = load.load(row)
                row.delete()
            elif not folder.exists(month):
                raise SealError("not-sealed", month=f"{month:%Y-%m}")
        folder.remove(month, digests)
        return loaded
