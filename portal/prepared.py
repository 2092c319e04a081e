"""Statements of pages, which a connection plans once: for a short statement over views, planning is most of its time.

They are psycopg's own prepared statements, which other cursors of Django's do not use (`prepare_threshold` in
`portal/settings.py`), bound by the server: one kind of value per name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Field, Model
from psycopg import Cursor


@contextmanager
def prepared_cursor() -> Iterator[CursorWrapper]:
    """A cursor of the connection in use, with all that stands around its statements; it takes one at a time."""
    with connection.cursor() as cursor:
        cursor.cursor.close()
        cursor.cursor = Cursor(connection.connection)
        yield cursor


def instances(cursor: CursorWrapper, *models: type[Model]) -> Iterator[tuple[Any, ...]]:
    """Each row as objects of these models, all columns of which it begins with, and then the rest of its values."""
    # Not by `description`: psycopg makes an object of each column, which takes longer than the look-up of a key.
    result = cursor.pgresult
    columns = [result.fname(place).decode() for place in range(result.nfields)]
    reads: list[tuple[type[Model], list[str], list[int]]] = []
    converters: list[tuple[int, Field[Any, Any], Any]] = []  # of JSON
    end = 0
    for model in models:
        fields = model._meta.concrete_fields  # in their own order, whatever the table's is
        start, end = end, end + len(fields)
        places = [columns.index(field.column, start, end) for field in fields]
        reads.append((model, [field.attname for field in fields], places))
        for place, field in zip(places, fields, strict=True):
            converters += [(place, field, one) for one in field.get_db_converters(connection)]
    for values in cursor:
        row = list(values)
        for place, field, convert in converters:
            row[place] = convert(row[place], field.cached_col, connection)
        objects = [
            model.from_db(connection.alias, names, [row[place] for place in places])
            for model, names, places in reads
        ]
        yield (*objects, *row[end:])
