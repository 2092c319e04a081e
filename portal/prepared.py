"""Statements of pages, which a connection plans once: for a short statement over views, planning is most of its time.

They are psycopg's own prepared statements, which other cursors of Django's do not use (`prepare_threshold` in
`portal/settings.py`), bound by the server: one kind of value per name. PostgreSQL plans one again for its values where
it takes the plan for any values to be dearer, as over many months, of which it does not see that few are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Model
from psycopg import Cursor
from psycopg.pq import TransactionStatus

USABLE = (TransactionStatus.IDLE, TransactionStatus.INTRANS)


@contextmanager
def prepared_cursor(*, any_values: bool = False) -> Iterator[CursorWrapper]:
    """A cursor of the connection in use, with all that stands around its statements; it takes one at a time.

    `any_values`: the plan for any values is taken, whatever PostgreSQL thinks of it: of statements that read little by
    keys, whichever these are.
    """
    with connection.cursor() as cursor:
        cursor.cursor.close()
        session = connection.connection
        cursor.cursor = Cursor(session)
        if not any_values:
            yield cursor
            return
        session.execute("SET plan_cache_mode = force_generic_plan")
        try:
            yield cursor
        finally:
            if session.info.transaction_status in USABLE:  # else it is taken back, or the session is gone
                session.execute("RESET plan_cache_mode")


def instances(cursor: CursorWrapper, *models: type[Model]) -> Iterator[tuple[Any, ...]]:
    """Each row as objects of these models, all columns of which it begins with, and then the rest of its values."""
    # Not by `description`: psycopg makes an object of each column, which takes longer than the look-up of a key.
    result = cursor.pgresult
    reading = _reading(models, tuple([result.fname(place) for place in range(result.nfields)]))
    for values in cursor:
        row = list(values)
        for place, column, convert in reading.converters:
            row[place] = convert(row[place], column, connection)
        objects = [
            model.from_db(DEFAULT_DB_ALIAS, names, [row[place] for place in places])
            for model, names, places in reading.models
        ]
        yield (*objects, *row[reading.end :])


@dataclass(frozen=True, slots=True)
class _Reading:
    """How rows of certain columns become objects."""

    models: list[tuple[type[Model], list[str], list[int]]]  # with the names and places of its fields
    converters: list[tuple[int, Any, Callable[..., Any]]]  # of JSON: place, column, function
    end: int  # columns of the models


@lru_cache
def _reading(models: tuple[type[Model], ...], names: tuple[bytes, ...]) -> _Reading:
    columns = [name.decode() for name in names]
    reading = _Reading([], [], sum(len(model._meta.concrete_fields) for model in models))
    end = 0
    for model in models:
        fields = model._meta.concrete_fields  # in their own order, whatever the table's is
        start, end = end, end + len(fields)
        places = [columns.index(str(field.column), start, end) for field in fields]
        reading.models.append((model, [field.attname for field in fields], places))
        for place, field in zip(places, fields, strict=True):
            reading.converters.extend(
                (place, field.cached_col, convert) for convert in field.get_db_converters(connection)
            )
    return reading
