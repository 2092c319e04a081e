"""What a process says as it starts, where rows that it may need are in files that it cannot reach."""

from __future__ import annotations

import os

import structlog
from django.conf import settings

from billing.sealed_months import folder
from clusters import absent_records

log = structlog.get_logger(__name__)

MOUNT = (
    "Mount the volume of SEALED_MONTHS_DIRECTORY here, readable and writable for this user, and start again: until "
    "then, imported usage of these months goes into quarantine, and rating that needs them waits."
)


def warn_of_unreachable_files() -> None:
    """Log one warning of the dropped months whose directory this process cannot read, or write beside. One query.

    It goes on: all that needs no row of these months works.
    """
    months = absent_records.list_all()
    if not months:
        return
    base = settings.CLUSTERTAB_SEALED_MONTHS
    is_usable = base is not None and os.access(base, os.R_OK | os.W_OK | os.X_OK)
    missing = [month for month in months if not (is_usable and folder.exists(month))]
    if missing:
        log.warning(
            "dropped months out of reach",
            months=absent_records.months_text(missing),
            directory=str(base or ""),
            hint=MOUNT,
        )
