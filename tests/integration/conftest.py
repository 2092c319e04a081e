from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from tests.integration import slurm_lab as lab


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly:
        lab.begin(session.items)


def pytest_unconfigure() -> None:
    lab.end()


@pytest.fixture
def effects(request: pytest.FixtureRequest) -> Iterator[Callable[[], list[str]]]:
    """A table for effects, and what is in it; rolls back or goes away with the test's database access."""
    committed = "transactional_db" in request.fixturenames
    request.getfixturevalue("transactional_db" if committed else "db")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE effects (mark text NOT NULL)")

    def marks() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT mark FROM effects ORDER BY mark")
            return [row[0] for row in cursor.fetchall()]

    yield marks
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE effects")


@pytest.fixture
def committed(transactional_db: None) -> Iterator[None]:
    """Rows that other connections see; what Django does not know how to empty is emptied here."""
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE billing_ratedusage, clusters_usagerevision")
