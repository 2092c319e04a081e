from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from tests.owner import as_owner


@pytest.fixture
def effects(request: pytest.FixtureRequest) -> Iterator[Callable[[], list[str]]]:
    """A table for effects, and what is in it; rolls back or goes away with the test's database access."""
    committed = "transactional_db" in request.fixturenames
    request.getfixturevalue("transactional_db" if committed else "db")
    with as_owner() as cursor:
        cursor.execute("CREATE TABLE effects (mark text NOT NULL)")
        cursor.execute("GRANT ALL ON effects TO clustertab_operator")

    def marks() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT mark FROM effects ORDER BY mark")
            return [row[0] for row in cursor.fetchall()]

    yield marks
    with as_owner() as cursor:
        cursor.execute("DROP TABLE effects")
