"""What all tests of a file begin with, made once: each of them is undone down to it, not to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connection, transaction
from pytest_django import DjangoDbBlocker

T = TypeVar("T")
BEGUN = "begun"


def fixtures(build: Callable[[], Any], name: str) -> tuple[Any, Any]:
    """The fixtures `begun` and `name`: what `build` makes in the database, made once for each file where it can be.

    It can where none of the tests that begin with it commits. Each test has a copy.
    """

    @pytest.fixture(scope="module", name=BEGUN)
    def begun(
        request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
    ) -> Iterator[list[Any]]:
        if not _begin_together(request, name):
            yield []
            return
        with _around(build, django_db_blocker) as built:
            yield [built]

    @pytest.fixture(name=name)
    def of_one_test(begun: list[Any], db: None) -> Any:
        return deepcopy(begun[0]) if begun else build()

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
    return not any(
        item.path == request.path and fixture in _used(item) and _commits(item)
        for item in request.session.items
    )


def order(items: list[pytest.Item]) -> None:
    """In each file those tests come last that share what they begin with: once it is made, it stays until the end."""
    places: dict[Path, int] = {}
    for item in items:
        places.setdefault(item.path, len(places))
    items.sort(key=lambda item: (places[item.path], BEGUN in _used(item)))


def _used(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


def _commits(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("django_db")
    return bool(marker and marker.kwargs.get("transaction")) or "transactional_db" in _used(item)
