"""An index of a partitioned table that a release brings: made table by table, and whole after being killed anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.utils import IntegrityError

from portal.ops.schema import as_owner
from portal.schema.upgrade import IndexPartitions

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = """
CREATE TABLE shelf (tenant_id bigint, month int, title text) PARTITION BY LIST (month);
CREATE TABLE shelf_1 PARTITION OF shelf FOR VALUES IN (1);
CREATE TABLE shelf_2 PARTITION OF shelf FOR VALUES IN (2);
INSERT INTO shelf SELECT n % 7, 1 + n % 2, n::text FROM generate_series(1, 100) AS n
"""
VALID = """
SELECT i.relname, x.indisvalid FROM pg_class i JOIN pg_index x ON x.indexrelid = i.oid
WHERE i.relname LIKE 'shelf%%' ORDER BY 1
"""
WHOLE = [
    ("shelf_1_tenant_id_month_idx", True),
    ("shelf_2_tenant_id_month_idx", True),
    ("shelf_of_tenant", True),
]


@pytest.fixture
def owner() -> Iterator[CursorWrapper]:
    with as_owner(), connection.cursor() as cursor:
        cursor.execute(TABLE)
        yield cursor
        cursor.execute("DROP TABLE shelf")


def migrate() -> None:
    operation = IndexPartitions("shelf", "shelf_of_tenant", ("tenant_id", "month"))
    operation.database_forwards("billing", SimpleNamespace(connection=connection))


def indexes(owner: CursorWrapper) -> list[tuple[str, bool]]:
    owner.execute(VALID)
    return list(owner.fetchall())


def test_each_partition_has_it_and_one_that_comes_later_too(owner: CursorWrapper) -> None:
    migrate()
    assert indexes(owner) == WHOLE
    owner.execute("CREATE TABLE shelf_3 PARTITION OF shelf FOR VALUES IN (3)")
    assert ("shelf_3_tenant_id_month_idx", True) in indexes(owner)


def test_a_second_run_makes_nothing(owner: CursorWrapper) -> None:
    migrate()
    owner.execute("SELECT array_agg(indexrelid) FROM pg_index")
    before = owner.fetchone()
    migrate()
    owner.execute("SELECT array_agg(indexrelid) FROM pg_index")
    assert owner.fetchone() == before


STEPS = (
    "CREATE INDEX shelf_of_tenant ON ONLY shelf (tenant_id, month)",
    "CREATE INDEX shelf_1_tenant_id_month_idx ON shelf_1 (tenant_id, month)",
    "ALTER INDEX shelf_of_tenant ATTACH PARTITION shelf_1_tenant_id_month_idx",
)


@pytest.mark.parametrize("made", [STEPS[:1], STEPS[:2], STEPS])
def test_killed_after_any_step_it_goes_on(owner: CursorWrapper, made: tuple[str, ...]) -> None:
    owner.execute("; ".join(made))
    migrate()
    assert indexes(owner) == WHOLE


def test_what_a_killed_build_left_unfinished_is_made_again(owner: CursorWrapper) -> None:
    """An index that was being made when its server was killed stays, and no statement reads it."""
    with pytest.raises(IntegrityError):  # a build that fails leaves the same as one that is killed
        owner.execute(
            "CREATE UNIQUE INDEX CONCURRENTLY shelf_1_tenant_id_month_idx ON shelf_1 (tenant_id, month)"
        )
    assert indexes(owner) == [("shelf_1_tenant_id_month_idx", False)]
    migrate()
    assert indexes(owner) == WHOLE
