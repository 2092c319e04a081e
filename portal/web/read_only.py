"""A transaction of the database in which nothing can be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def read_only() -> Iterator[None]:
    """Refuses every write in the block, and is undone at its end, by which an outer transaction can write again."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
        yield
        transaction.set_rollback(True)
