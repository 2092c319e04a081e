"""Statements of pages, which a connection plans once: for a short statement over views, planning is most of its time.

They are psycopg's own prepared statements, which other cursors of Django's do not use (`prepare_threshold` in
`portal/settings.py`), bound by the server: one kind of value per name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.db.backends.utils import CursorWrapper
from psycopg import Cursor


@contextmanager
def prepared_cursor() -> Iterator[CursorWrapper]:
    """A cursor of the connection in use, with all that stands around its statements; it takes one at a time."""
    with connection.cursor() as cursor:
        cursor.cursor.close()
        cursor.cursor = Cursor(connection.connection)
        yield cursor
