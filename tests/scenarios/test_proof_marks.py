"""Which months a write marks, so that they are proved again: all that it can have changed, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

import pytest
from django.db import connection, transaction

from billing.models import PeriodTopJob
from billing.proof import checks
from billing.rating import period_jobs
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import LATER, a_cluster, a_job, a_plan, a_tenant, ingest
from tests.owner import as_owner
from tests.stories import prove

pytestmark = pytest.mark.django_db

JANUARY, FEBRUARY, MARCH, APRIL, MAY = (date(2026, month, 1) for month in range(1, 6))
POD = {"job_id": "pod", "source_key": "pod-1", "submitted": "2026-01-05 00:00", "started": "2026-01-05 00:00"}


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-07-01")


@pytest.fixture
def lab(cluster: Cluster) -> Tenant:
    """A job in each of January, February and March; all proved."""
    lab = a_tenant("lab", plan=a_plan(), accounts=[(cluster, "vision")])
    for month in (1, 2, 3):
        day = f"2026-0{month}-02"
        ingest(cluster, a_job(job_id=str(month), gpus=4, started=f"{day} 10:00", ended=f"{day} 11:00"))
    assert checks.prove(moment=LATER).recomputed == [JANUARY, FEBRUARY, MARCH]
    return lab


def recomputed() -> list[date]:
    """What a proof recomputes now; it finds what one in full finds, and is kept."""
    now = checks.prove(moment=LATER)
    prove()
    return list(now.recomputed)


@contextmanager
def for_once() -> Iterator[None]:
    """What is written in between is taken back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


OWNERS_STATEMENTS = [
    "TRUNCATE billing_dailyusage",
    "TRUNCATE billing_daytotal",
    "TRUNCATE billing_periodtopjob",
    "TRUNCATE billing_ratedjob_2026_02",
    "TRUNCATE clusters_usagerecord CASCADE",
    "UPDATE clusters_usagerecord_2026_02 SET gpus = 5 WHERE job_id = '2'",
    "DELETE FROM clusters_usagerecord_2026_02 WHERE job_id = '2'",
    "DELETE FROM billing_ratedjob_2026_02",
    "UPDATE billing_ratedjob SET started = started - 86400 * 28 WHERE job_id = '2'",
    "UPDATE billing_dailyusage SET day = day + 59 WHERE day = '2026-02-02'",
    "UPDATE billing_daytotal SET day = day + 59 WHERE day = '2026-02-02'",
    "UPDATE billing_usageseries SET tenant_id = tenant_id + 1",
    "UPDATE billing_usageseries SET id = id + 1000",
    "UPDATE billing_periodtopjob SET period_id = period_id + 1",
    "UPDATE clusters_account SET cluster_id = (SELECT id FROM clusters_cluster WHERE name = 'other')",
    "UPDATE tenants_project SET tenant_id = (SELECT id FROM tenants_tenant WHERE slug = 'other')",
]


def test_what_the_owner_of_the_tables_writes_with_triggers_on_is_found_by_the_next_proof(lab: Tenant) -> None:
    a_cluster("other")
    a_tenant("other")
    for statement in OWNERS_STATEMENTS:
        with for_once():
            with as_owner() as owner:
                owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
                owner.execute(statement)
            assert not checks.prove().holds, statement
    assert checks.prove().recomputed == []


def test_a_statement_marks_the_months_of_its_rows_and_none_between(lab: Tenant, cluster: Cluster) -> None:
    """Three months or more apart, two in a row, and none, each by statements of their own; of which one is marked."""
    for number, months in enumerate([(1, 3), (1, 5), (2, 3), (4,), (3, 4, 5), (2, 5)]):
        ingest(
            cluster,
            *(
                a_job(
                    job_id=f"{number}-{month}",
                    started=f"2026-0{month}-09 10:00",
                    ended=f"2026-0{month}-09 11:00",
                )
                for month in months
            ),
        )
        assert recomputed() == [date(2026, month, 1) for month in months]
    for statement, marks in [
        (
            "UPDATE billing_daytotal SET units = units WHERE day IN ('2026-01-02', '2026-03-02')",
            [JANUARY, MARCH],
        ),
        (
            "UPDATE billing_daytotal SET units = units WHERE day IN ('2026-01-02', '2026-04-09')",
            [JANUARY, APRIL],
        ),
        ("UPDATE billing_daytotal SET units = units WHERE day < '2001-01-01'", []),
        ("DELETE FROM billing_ratedjob WHERE job_id IN ('1-1', '1-5')", [JANUARY, MAY]),
        ("UPDATE clusters_usagerecord SET name = 'x' WHERE job_id IN ('5-2', '5-5')", [FEBRUARY, MAY]),
    ]:
        with for_once(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('app.proof_marks', '{2026-01-01}', true)")
            cursor.execute(
                "DELETE FROM billing_proofmark; INSERT INTO billing_proofmark (month) VALUES ('2026-01-01')"
            )
            cursor.execute(statement)
            assert checks.prove().recomputed == sorted({JANUARY, *marks}), statement


def test_a_run_of_many_months_has_the_months_of_its_record_and_of_what_was_added_proved_again(
    lab: Tenant, cluster: Cluster
) -> None:
    """A pod of January is seen until May; later it is told to have begun at another time, and to be of another user."""

    def seen(until: str, **fields: str) -> list[date]:
        ingest(cluster, a_job(**{**POD, "state": "RUNNING", "ended": None, "seen_until": until, **fields}))
        return recomputed()

    assert seen("2026-03-20 12:00") == [JANUARY, FEBRUARY, MARCH]
    assert seen("2026-03-21 12:00") == [JANUARY, MARCH]
    assert seen("2026-05-05 12:00") == [JANUARY, MARCH, APRIL, MAY]
    assert seen("2026-05-06 12:00") == [JANUARY, MAY]
    assert seen("2026-05-06 12:00") == []
    assert seen("2026-05-06 12:00", user="eve") == [JANUARY, FEBRUARY, MARCH, APRIL, MAY]
    assert seen("2026-05-06 12:00", user="eve", started="2026-02-05 00:00") == [
        JANUARY,
        FEBRUARY,
        MARCH,
        APRIL,
        MAY,
    ]
    assert seen("2026-05-07 12:00", user="eve", started="2026-02-05 00:00") == [JANUARY, MAY]
    ended = {"state": "COMPLETED", "seen_until": None, "ended": "2026-05-07 13:00"}
    ingest(cluster, a_job(**{**POD, "user": "eve", "started": "2026-02-05 00:00", **ended}))
    assert recomputed() == [JANUARY, FEBRUARY, MARCH, APRIL, MAY]  # every day of it moves to another state


def test_a_run_that_comes_to_cost_more_than_kept_jobs_of_earlier_months_has_those_proved_again(
    lab: Tenant, cluster: Cluster
) -> None:
    running = {**POD, "gpus": 1, "state": "RUNNING", "ended": None}
    ingest(cluster, a_job(**running, seen_until="2026-03-20 12:00"))
    costly = [
        a_job(gpus=8, started=f"2026-02-{day:02} 00:00", ended=f"2026-02-{day + 10:02} 00:00")
        for day in range(1, 11)
        for _ in range(period_jobs.MOST // 10 + 1)
    ]
    ingest(cluster, *costly)
    assert recomputed() == [JANUARY, FEBRUARY, MARCH]
    top = PeriodTopJob.objects.filter(period__start__month=2)
    pod = "record_id = (SELECT id FROM clusters_usagerecord WHERE job_id = 'pod')"
    assert not top.extra(where=[pod]).exists()
    ingest(cluster, a_job(**running, seen_until="2026-03-21 12:00"))
    assert recomputed() == [JANUARY, MARCH]
    with for_once(), connection.cursor() as cursor:  # as if rating had not looked at the places of February
        cursor.execute(f"UPDATE billing_ratedjob SET cost_units = 9999999 WHERE {pod}")
        assert FEBRUARY in checks.prove().recomputed
        assert not checks.prove().holds
    ingest(cluster, a_job(**running, seen_until="2026-06-29 12:00"))
    assert FEBRUARY in recomputed()
    assert top.extra(where=[pod]).exists()


TABLES = ("clusters_usagerecord", "billing_ratedjob", "billing_ratedusage")


@pytest.mark.parametrize("table", TABLES)
def test_a_month_of_which_rows_were_detached_or_replaced_is_proved_again(lab: Tenant, table: str) -> None:
    """No trigger hears of it, nor of what was written before to a table that is attached in its place."""
    part = f"{table}_2026_02"
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        owner.execute("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = %s::regclass", [part])
        bound = owner.fetchone()[0]
        owner.execute(f"ALTER TABLE {table} DETACH PARTITION {part}")
    assert checks.prove().recomputed == [FEBRUARY]
    assert not checks.prove().holds
    with as_owner() as owner:
        owner.execute(f"ALTER TABLE {table} ATTACH PARTITION {part} {bound}")
    assert recomputed() == []
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        owner.execute(
            f"ALTER TABLE {table} DETACH PARTITION {part}; ALTER TABLE {part} RENAME TO away;"
            f" CREATE TABLE {part} (LIKE {table} INCLUDING ALL);"
            f" ALTER TABLE {table} ATTACH PARTITION {part} {bound}"
        )
    assert checks.prove().recomputed == [FEBRUARY]
    assert not checks.prove().holds
