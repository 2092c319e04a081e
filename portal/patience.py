"""How long pages and the API wait in the database: for a row that somebody else changes, and for one statement.

Workers and commands have no such limits: nobody waits for them, and what they do may take an hour.
"""

from __future__ import annotations

from typing import Any, Final

LIMITS: Final = "-c lock_timeout=20s -c statement_timeout=120s"
"""As options of a session. Transactions that say a shorter time of their own have that one."""


def limit(database: dict[str, Any]) -> dict[str, Any]:
    """Settings of a database for a process that serves pages; what the operator's address says goes before."""
    options = database["OPTIONS"]
    return database | {"OPTIONS": options | {"options": f"{LIMITS} {options.get('options', '')}".strip()}}


def ran_out(error: BaseException) -> bool:
    """Whether a statement was given up for that. What its transaction did is undone."""
    from psycopg.errors import (  # settings, which ask for the limits, go without
        LockNotAvailable,
        QueryCanceled,
    )

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LockNotAvailable | QueryCanceled):
            return True
        cause = cause.__cause__
    return False
