"""What a process says as it starts, where rows that it may need are in files that it cannot reach."""

from __future__ import annotations

import os
from contextlib import suppress

import structlog
from django.conf import settings
from django.db import DatabaseError, connections

from billing.sealed_months import folder, object_storage
from clusters import absent_records

log = structlog.get_logger(__name__)

MOUNT = (
    "Mount the volume of SEALED_MONTHS_DIRECTORY here, readable and writable for this user, and start again: until "
    "then, imported usage of these months goes into quarantine, and rating that needs them waits."
)


def look_at_files() -> None:
    """Before a process forks or serves: say what it cannot reach, and go on in any case.

    No connection stays: none may cross a fork, and those that a process may have are for its work.
    """
    try:
        warn_of_unreachable_files()
    except DatabaseError as error:
        log.warning("dropped months not looked at", reason=str(error).strip())
    finally:
        connections.close_all()


def warn_of_unreachable_files() -> None:
    """Log one warning of the dropped months whose directory this process cannot read, or write beside. One query."""
    months = absent_records.list_all()
    if not months:
        return
    base = settings.CLUSTERTAB_SEALED_MONTHS
    if base is not None and object_storage.is_set():
        with suppress(OSError):
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_usable = base is not None and os.access(base, os.R_OK | os.W_OK | os.X_OK)
    missing = [
        month for month in months if not (is_usable and (object_storage.is_set() or folder.exists(month)))
    ]
    if missing:
        log.warning(
            "dropped months out of reach",
            months=absent_records.months_text(missing),
            directory=str(base or ""),
            hint=MOUNT,
        )
