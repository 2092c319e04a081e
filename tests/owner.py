"""Breaking a law of the schema on purpose, as only the owner of the tables could."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

OWNER = """
SELECT set_config('role', tableowner, true) FROM pg_tables WHERE tablename = 'schema_level'
"""


@contextmanager
def as_owner() -> Iterator[CursorWrapper]:
    """A cursor of the owner, in a transaction; afterwards the login is again the one that everything runs as."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(OWNER)
        yield cursor
        cursor.execute("SET LOCAL ROLE NONE")
