"""A standing database to prove in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper


@contextmanager
def snapshot() -> Iterator[CursorWrapper]:
    """A cursor for which the database stands still, as it was at its first statement."""
    with transaction.atomic(), connection.cursor() as cursor:
        if not connection.savepoint_ids:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield cursor
