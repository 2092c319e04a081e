"""What all tests of a file begin with, made once: each of them is undone down to it, not to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeVar

import pytest
from django.db import connection, transaction
from pytest_django import DjangoDbBlocker

T = TypeVar("T")


def fixtures(build: Callable[[], Any], name: str) -> tuple[Any, Any]:
    """The fixtures `begun` and `name`: what `build` makes in the database, made once for each file where it can be.

    It can where all tests of the file that use the database begin with it, and none commits. Each test has a copy.
    """

    @pytest.fixture(scope="module", name="begun")
    def begun(
        request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
    ) -> Iterator[Any]:
        if not _begin_together(request, name):
            yield None
            return
        with _around(build, django_db_blocker) as built:
            yield built

    @pytest.fixture(name=name)
    def of_one_test(begun: Any, db: None) -> Any:
        return build() if begun is None else deepcopy(begun)

    return begun, of_one_test


@contextmanager
def _around(build: Callable[[], T], blocker: DjangoDbBlocker) -> Iterator[T]:
    """A transaction around a file's tests, each of which is a savepoint in it."""
    around = transaction.atomic()
    with blocker.unblock():
        around.__enter__()
    try:
        with blocker.unblock():
            built = build()
            _check_constraints()  # else each test would check them again
        yield built
    finally:
        with blocker.unblock():
            transaction.set_rollback(True)
            around.__exit__(None, None, None)


def _check_constraints() -> None:
    """Django leaves all of them deferred: those that hold at once would refuse nothing in the tests that follow."""
    connection.check_constraints()
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT conname FROM pg_constraint WHERE condeferrable AND NOT condeferred")
        for (name,) in cursor.fetchall():
            cursor.execute(f"SET CONSTRAINTS {connection.ops.quote_name(name)} IMMEDIATE")


def _begin_together(request: pytest.FixtureRequest, fixture: str) -> bool:
    for item in request.session.items:
        if item.path != request.path:
            continue
        marker, used = item.get_closest_marker("django_db"), set(getattr(item, "fixturenames", ()))
        if (marker and marker.kwargs.get("transaction")) or "transactional_db" in used:
            return False
        if (marker or "db" in used) and fixture not in used:
            return False
    return True
