"""Two workers have one run with other starts, on both sides of a month's border; a month goes while others are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, transaction

from clusters import ledger
from clusters.models import Cluster, UsageKey, UsageRecord
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.stories import prove

pytestmark = pytest.mark.django_db(transaction=True)

POD = {"source_key": "0b6f2d1e-58a7-4d8f-a4e0-1f6a4a1f6f10/main/gpu", "submitted": None, "job_id": "pod"}
MARCH = {"started": "2026-03-31 23:59", "ended": "2026-04-01 01:00"}
APRIL = {"started": "2026-04-01 00:01", "ended": "2026-04-01 01:00"}


class Worker(threading.Thread):
    """Does one thing by a connection of its own."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act, self.trouble = act, None

    trouble: BaseException | None

    def run(self) -> None:
        try:
            self.act()
        except BaseException as error:  # noqa: BLE001 - told by whoever joins
            self.trouble = error
        finally:
            connection.close()


def wait_for(condition: str) -> None:
    """Until the server says so of another connection."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                f" AND pid <> pg_backend_pid() AND {condition}"
            )
            if cursor.fetchone()[0]:
                return
        time.sleep(0.02)
    raise AssertionError(f"nobody came to {condition}")


def stored(cluster: Cluster, **times: str) -> None:
    """As an import, but for the lock that has imports of one cluster wait for each other."""
    with transaction.atomic():
        fact = a_job(**POD, **times)
        ledger.store(cluster=cluster, facts=[fact], bad=[], source="test", moment=at("2026-04-02"))


def test_two_imports_at_once_keep_one_record_in_the_month_of_the_first() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    second = Worker(lambda: ingest(cluster, a_job(**POD, **APRIL)))
    with transaction.atomic():
        ingest(cluster, a_job(**POD, **MARCH))
        second.start()
        wait_for("wait_event_type = 'Lock'")
    second.join()
    assert second.trouble is None
    (record,) = UsageRecord.objects.all()
    assert (record.pk >> 40, record.revision) == ((2026 - 1970) * 12 + 2, 2)
    prove()


def test_the_database_keeps_one_where_nothing_else_would() -> None:
    cluster = a_cluster()
    ingest(
        cluster, a_job(job_id="1", started="2026-03-02 10:00"), a_job(job_id="2", started="2026-04-01 10:00")
    )
    second = Worker(lambda: stored(cluster, **APRIL))
    with transaction.atomic():
        stored(cluster, **MARCH)
        second.start()
        wait_for("wait_event_type = 'Lock'")
    second.join()
    assert isinstance(second.trouble, IntegrityError)
    (record,) = UsageRecord.objects.filter(source_key=POD["source_key"])
    assert record.pk >> 40 == (2026 - 1970) * 12 + 2
    assert UsageKey.objects.get().record_id == record.pk


def test_an_old_month_is_detached_while_others_are_read_and_written() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(job_id="1", started="2025-01-02 10:00", ended="2025-01-02 11:00"))
    ingest(cluster, a_job(job_id="2", started="2026-03-02 10:00", ended="2026-03-02 11:00"))

    def detaches() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'clusters_usagerecord'")
            cursor.execute(f'SET ROLE "{cursor.fetchone()[0]}"')
            for table in ("billing_ratedjob", "clusters_usagerecord"):
                cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {table}_2025_01 CONCURRENTLY")

    owner = Worker(detaches)
    others = [
        Worker(
            lambda: ingest(cluster, a_job(job_id="3", started="2026-03-03 10:00", ended="2026-03-03 11:00"))
        ),
        Worker(lambda: UsageRecord.objects.get(job_id="2")),
    ]
    with transaction.atomic():
        assert UsageRecord.objects.filter(job_id="2").count() == 1  # the reader for whom the owner waits
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM billing_ratedjob")
        owner.start()
        wait_for("wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE%%'".replace("%%", "%"))
        for other in others:
            other.start()
            other.join(timeout=20)
            assert (other.is_alive(), other.trouble) == (False, None)
        assert owner.is_alive()
    owner.join(timeout=30)
    assert (owner.is_alive(), owner.trouble) == (False, None)
    assert sorted(UsageRecord.objects.values_list("job_id", flat=True)) == ["2", "3"]
