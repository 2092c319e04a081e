"""One sight of the database for all statements of a transaction, as it is at the first of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

BEGIN = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; LOCK TABLE billing_sealedmonth IN ACCESS SHARE MODE"
"""Before any query of the transaction. A table that is emptied is empty in older sights, too: with the lock, which who
drops a month's rows needs alone, none is emptied until the transaction ends."""


@contextmanager
def one_sight() -> Iterator[CursorWrapper]:
    """In a transaction of its own; within another one, each statement sees what was committed before it."""
    with transaction.atomic(), connection.cursor() as cursor:
        if not connection.savepoint_ids:
            cursor.execute(BEGIN)
        yield cursor
