"""Records and jobs stand in the month of an instant that never changes, and each source key once for ever."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from billing.models import RatedJob, RatedUsage
from clusters.models import UsageKey, UsageRecord, UsageRevision
from portal.core.tenants.scope import acting_scope, tenant_scope
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.owner import as_owner
from tests.stories import prove, seconds

pytestmark = pytest.mark.django_db

POD = "0b6f2d1e-58a7-4d8f-a4e0-1f6a4a1f6f10/main/gpu"


def months(table: str) -> dict[int, str]:
    """By record the end of the name of its partition: "2026_03"."""
    key = "id" if table == "clusters_usagerecord" else "record_id"
    return {row[0]: row[1][-7:] for row in rows(f"SELECT {key}, tableoid::regclass::text FROM {table}")}


def rows(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


@pytest.mark.parametrize(
    ("key", "month"),
    [
        ("100001@1504521041", "2017-09-01"),
        ("100001@1504223999", "2017-08-31"),
        ("100001@1504224000", "2017-09-01"),
        ("7@980000000", "2001-01-20"),
        ("7@3999999999", "2096-10-02"),
        ("1234.torque@server@1772445600", "2026-03-02"),
        ("gpu1/ben/2026-03-02T10Z", "2026-03-02"),
        ("gpu1/ben/2026-12-31T23Z/rest", "2026-12-31"),
    ],
)
def test_a_key_that_has_an_instant_says_its_month(key: str, month: str) -> None:
    year, number = (int(part) for part in month.split("-")[:2])
    assert rows("SELECT usage_key_month(%s)", key) == [((year - 1970) * 12 + number - 1,)]


@pytest.mark.parametrize(
    "key",
    [
        POD,
        "7@1",
        "7@979999999",
        "7@4000000000",
        "7@99999999999",
        f"7@{'1' * 30}",
        "7@0772445600",
        "ben@2026",
        "gpu1/ben/2026-13-02T10Z",
        "gpu1/ben/2026-00-02T10Z",
        "gpu1/ben/2026-1x-02T10Z",
        "gpu1/ben/2026-03-02T1xZ",
        "gpu1/ben/1926-03-02T10Z",
        "gpu1/ben/20/6-03-02T10Z",
        "gpu1/ben/2026-03-02T10Z/",
        "gpu1/ben/2026-03-02T10Z/test",
        "gpu1/ben/at-2026-03-02T10Z",
        "2026-03-02T10Z",
        "2026-03-02T10Z/rest",
        "@",
        "",
        "cluster 7@1504521041",
        "a gpu1/ben/2026-03-02T10Z",
    ],
)
def test_a_key_without_one_says_none(key: str) -> None:
    assert rows("SELECT usage_key_month(%s)", key) == [(None,)]


def test_a_run_stays_in_the_month_of_its_submission_wherever_it_starts() -> None:
    cluster = a_cluster()
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    waiting = {"job_id": "17", "submitted": "2026-01-30 08:00"}
    ingest(cluster, a_job(started=None, ended=None, **waiting))
    (record,) = UsageRecord.objects.all()

    ingest(cluster, a_job(started="2026-02-03 10:00", ended=None, seen_until="2026-02-03 11:00", **waiting))
    ingest(cluster, a_job(started="2026-03-01 10:00", ended="2026-03-01 12:00", **waiting))

    assert months("clusters_usagerecord") == months("billing_ratedjob") == {record.pk: "2026_01"}
    assert UsageRecord.objects.get().revision == 3
    assert not UsageKey.objects.exists()
    assert seconds(tenant) == 7200
    assert record.pk < 2**53
    prove()


def test_a_pod_stays_in_the_month_in_which_it_was_first_seen() -> None:
    cluster = a_cluster()
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    pod = {"source_key": POD, "submitted": None, "job_id": "pod"}
    ingest(cluster, a_job(started="2026-03-31 23:59", ended=None, seen_until="2026-04-01 01:00", **pod))
    (record,) = UsageRecord.objects.all()
    ingest(cluster, a_job(started="2026-04-01 00:01", ended="2026-04-01 03:01", **pod))

    assert months("clusters_usagerecord") == months("billing_ratedjob") == {record.pk: "2026_03"}
    assert list(UsageKey.objects.values_list("source_key", "record_id")) == [(POD, record.pk)]
    assert UsageRevision.objects.count() == 1
    assert seconds(tenant) == 3 * 3600
    prove()


def test_a_pod_that_comes_twice_in_a_batch_with_other_starts_is_one() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    pod = {"source_key": POD, "submitted": None, "job_id": "pod"}
    ingest(
        cluster,
        a_job(started="2026-05-31 23:00", ended=None, seen_until="2026-05-31 23:30", **pod),
        a_job(started="2026-06-01 00:00", ended="2026-06-01 01:00", **pod),
    )
    assert list(months("clusters_usagerecord").values()) == ["2026_05"]
    assert list(months("billing_ratedjob").values()) == ["2026_05"]
    prove()


def test_one_key_of_two_clusters_is_two_records() -> None:
    for name in ("gpu1", "gpu2"):
        ingest(a_cluster(name), a_job(source_key=POD), a_job(job_id="7"))
    assert (UsageRecord.objects.count(), UsageKey.objects.count()) == (4, 2)


def copied(record: UsageRecord, **changed: Any) -> None:
    """Insert the record once more, as no use case would."""
    fields: dict[str, Any] = {
        str(field.column): getattr(record, field.attname) for field in UsageRecord._meta.local_fields
    }
    fields |= changed
    names = ", ".join(f'"{name}"' for name in fields)
    marks = ", ".join(["%s"] * len(fields))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO clusters_usagerecord ({names}) VALUES ({marks})", list(fields.values()))


@pytest.mark.parametrize("key", ["7@1772445600", POD])
@pytest.mark.parametrize("later", [0, 1])
def test_the_database_itself_takes_no_key_a_second_time(key: str, later: int) -> None:
    """Neither in its month nor in another."""
    cluster = a_cluster()
    ingest(cluster, a_job(source_key=key, started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    (record,) = UsageRecord.objects.all()
    month = (record.pk >> 40) + later
    rows("SELECT clusters_ensure_records(%s)", month)
    with pytest.raises(IntegrityError):
        copied(record, id=month << 40 | 5)
    assert UsageRecord.objects.count() == 1


@pytest.mark.parametrize("column", ["id", "cluster_id", "source_key"])
def test_what_identifies_a_record_never_changes(column: str) -> None:
    ingest(a_cluster(), a_job())
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
        rows(f"UPDATE clusters_usagerecord SET {column} = {column} RETURNING 1")


def test_partitions_are_nobodys_but_the_operators() -> None:
    cluster = a_cluster()
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    other = a_tenant("audio-lab", plan=a_plan("other"))
    ingest(cluster, a_job(started="2026-03-02 10:00"))
    with tenant_scope(tenant):
        assert RatedJob.objects.count() == 1
    with tenant_scope(other):
        assert RatedJob.objects.count() == 0
    for scope in (tenant_scope, acting_scope):
        for part in ("clusters_usagerecord_2026_03", "billing_ratedjob_2026_03", "clusters_usagekey"):
            with (
                pytest.raises(DatabaseError, match="permission denied"),
                transaction.atomic(),
                tenant_scope(tenant),
                scope(tenant) if scope is acting_scope else nullcontext(),
            ):
                rows(f"SELECT * FROM {part}")
    for change in ("DELETE FROM", "TRUNCATE"):
        for part in ("clusters_usagerecord_2026_03", "billing_ratedjob_2026_03"):
            with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
                rows(f"{change} {part}")


def test_a_job_that_moves_to_another_tenant_takes_no_job_of_another_month_with_it() -> None:
    """Jobs of two months may stand in the same place of their partitions; no other test uses these."""
    cluster, plan = a_cluster(), a_plan()
    vision = a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])
    audio = a_tenant("audio-lab", plan=plan, accounts=[(cluster, "audio")])
    for month in ("2019-05", "2019-06"):
        ingest(cluster, a_job(job_id=month[-2:], started=f"{month}-02 10:00", ended=f"{month}-02 11:00"))
    march = {"job_id": "05", "started": "2019-05-02 10:00", "ended": "2019-05-02 11:00"}
    assert len({place for (place,) in rows("SELECT ctid::text FROM billing_ratedjob")}) == 1

    ingest(cluster, a_job(account="audio", **march))

    assert [job.job_id for job in RatedJob.objects.filter(tenant=vision)] == ["06"]
    assert [job.job_id for job in RatedJob.objects.filter(tenant=audio)] == ["05"]
    prove()


def test_a_look_up_by_number_reads_one_partition() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(
        cluster,
        *[
            a_job(started=f"2025-{month:02d}-02 10:00", ended=f"2025-{month:02d}-02 11:00")
            for month in range(1, 13)
        ],
    )
    record = UsageRecord.objects.order_by("pk")[5]
    for table, key in (("clusters_usagerecord", "id"), ("billing_ratedjob", "record_id")):
        (plan,) = rows(f"EXPLAIN (FORMAT JSON) SELECT * FROM {table} WHERE {key} = %s", record.pk)[0]
        assert str(plan).count(f"{table}_") - str(plan).count("_pkey") == 1
        assert f"{table}_2025_06" in str(plan)


def test_an_odd_time_makes_no_partition_of_its_own() -> None:
    """A submission in the year 2, or far ahead, says no month: the record stands where it was read."""
    cluster = a_cluster()
    ingest(cluster, a_job(source_key="7@-5", submitted=-5, started="2026-03-02 10:00"))
    assert list(months("clusters_usagerecord").values()) == ["2030_01"]  # when it was read


def test_a_month_that_is_detached_leaves_the_others_as_they_are() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(job_id="1", started="2025-01-02 10:00", ended="2025-01-02 11:00"))
    ingest(cluster, a_job(job_id="2", started="2026-03-02 10:00"))
    with as_owner() as owner:
        for table in ("billing_ratedjob", "clusters_usagerecord"):
            owner.execute(f"ALTER TABLE {table} DETACH PARTITION {table}_2025_01")
    assert [record.job_id for record in UsageRecord.objects.all()] == ["2"]
    assert [job.job_id for job in RatedJob.objects.all()] == ["2"]
    assert RatedUsage.objects.filter(service_month=at("2025-01-01").date()).exists()


def test_a_late_fact_of_a_detached_month_attaches_it_again_and_is_recorded_once() -> None:
    cluster = a_cluster()
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    job = a_job(job_id="1", started="2025-01-02 10:00", ended="2025-01-02 11:00")
    ingest(cluster, job)
    with as_owner() as owner:
        for table in ("billing_ratedjob", "clusters_usagerecord"):
            owner.execute(f"ALTER TABLE {table} DETACH PARTITION {table}_2025_01")
    ingest(cluster, job, a_job(job_id="2", started="2025-01-03 10:00", ended="2025-01-03 11:00"))
    assert sorted(UsageRecord.objects.values_list("job_id", flat=True)) == ["1", "2"]
    assert sorted(RatedJob.objects.values_list("job_id", flat=True)) == ["1", "2"]
    assert seconds(lab) == 2 * 3600
    prove()
