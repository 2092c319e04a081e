"""What reads in one sight of the database finds all that was there when it began, also while a month is dropped.

A table that is emptied is empty in older sights, too.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection
from psycopg.errors import LockNotAvailable

from billing.models import SealedMonth
from portal.core.one_sight import one_sight
from tests.sealed_march import MARCH, NOW

pytestmark = pytest.mark.django_db(transaction=True)

DROP = "SET lock_timeout = 100; LOCK TABLE billing_sealedmonth IN ACCESS EXCLUSIVE MODE"
"""As `billing_drop_month` begins."""
WAITING = """
SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
WHERE NOT l.granted AND l.relation = 'billing_sealedmonth'::regclass
"""


def test_from_its_first_moment_no_month_is_dropped(database_url: str) -> None:
    with psycopg.connect(database_url) as other:
        with one_sight(), pytest.raises(LockNotAvailable):
            other.execute(DROP)
        other.rollback()
        other.execute(DROP)


def test_what_begins_during_a_drop_sees_that_the_month_is_dropped(database_url: str) -> None:
    SealedMonth.objects.create(month=MARCH, sealed_at=NOW, changed_at=NOW)

    def dropped() -> bool:
        try:
            with one_sight():
                return SealedMonth.objects.filter(dropped_at__isnull=False).exists()
        finally:
            connection.close()

    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        other.execute(DROP)
        reader = pool.submit(dropped)
        deadline = time.monotonic() + 60
        while other.execute(WAITING).fetchone() != (1,):
            assert not reader.done()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        other.execute("UPDATE billing_sealedmonth SET dropped_at = sealed_at")
        other.commit()
        assert reader.result()
