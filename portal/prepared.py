"""Statements of pages, which a connection plans once: for a short statement over views, planning is most of its time.

They are psycopg's own prepared statements, which other cursors of Django's do not use (`prepare_threshold` in
`portal/settings.py`), bound by the server: one kind of value per name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Model
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
    names = [column.name for column in cursor.description]
    ends = list(accumulate((len(model._meta.concrete_fields) for model in models), initial=0))
    places = [slice(*place) for place in pairwise(ends)]
    for row in cursor:
        objects = [
            model.from_db(connection.alias, names[place], row[place])
            for model, place in zip(models, places, strict=True)
        ]
        yield (*objects, *row[ends[-1] :])
