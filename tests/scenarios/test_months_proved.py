"""One past month a night is proved again: what somebody changed behind the program's back is found, and named."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from fractions import Fraction

import pytest
from django.db import connection

from billing.models import MonthProof
from billing.proof import months, records
from clusters.models import UsageRecord
from portal.queues import queue_of
from portal.schedule import SCHEDULE
from tests.builders import LATER, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.owner import as_owner
from tests.stories import Seconds, closed, hours

pytestmark = pytest.mark.django_db

JANUARY, FEBRUARY, MARCH = (date(2026, month, 1) for month in (1, 2, 3))
NIGHT = at("2026-04-20 02:00")


@pytest.fixture
def books() -> None:
    """A job of four GPUs for an hour in each of January, February and March, and one of April, which is not over."""
    cluster = a_cluster(complete_through="2026-04-01")
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    for month in (1, 2, 3, 4):
        ingest(
            cluster,
            a_job(
                job_id=str(month), gpus=4, started=f"2026-0{month}-02 10:00", ended=f"2026-0{month}-02 11:00"
            ),
        )
    UsageRecord.objects.update(last_seen=at("2026-04-03"))  # long before the night
    closed("2026-01", lab)


def nights(count: int, *, first: datetime = NIGHT) -> list[MonthProof | None]:
    return [months.prove_next(moment=first + timedelta(days=night)) for night in range(count)]


def allocated(month: date) -> Seconds:
    """GPU-seconds that its proof has of its records."""
    held = records.of_proof(MonthProof.objects.get(month=month))
    return sum((held[key] for key in held if key[2:] == ("gpu", "allocated")), Fraction(0))


def tamper(statement: str) -> None:
    """As the owner of the tables, who can switch off their laws."""
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        owner.execute("ALTER TABLE billing_ratedusage DISABLE TRIGGER USER")
        owner.execute(statement)
        owner.execute("ALTER TABLE billing_ratedusage ENABLE TRIGGER USER")


def test_each_past_month_has_its_night_in_turn_and_none_has_two(books: None) -> None:
    with connection.cursor() as cursor:  # a month that has room, and no record, has no night
        cursor.execute(
            "SELECT clusters_ensure_records(month_number(extract(epoch FROM date '2025-02-01')::bigint))"
        )
    proofs = nights(4)
    assert [proof and proof.month for proof in proofs] == [JANUARY, FEBRUARY, MARCH, JANUARY]
    assert not any(proof and proof.broken for proof in proofs)
    assert months.prove_next(moment=NIGHT + timedelta(days=3, hours=5)) is None
    assert MonthProof.objects.count() == 3
    assert allocated(MARCH) == hours(4)


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE clusters_usagerecord SET gpus = 5 WHERE job_id = '2'", "job 2 of gpu1/vision"),
        (
            "UPDATE billing_ratedusage SET units = units - 1 WHERE service_month = '2026-02-01'",
            "job 2 of gpu1/vision",
        ),
        ("DELETE FROM billing_ratedusage WHERE service_month = '2026-02-01'", "job 2 of gpu1/vision"),
        (
            (
                "WITH gone AS (DELETE FROM clusters_usagerecord WHERE job_id = '2' RETURNING id)"
                " DELETE FROM billing_ratedusage WHERE record_id IN (TABLE gone)"
            ),
            "1 of 1 usage records are gone",
        ),
        (
            (
                "WITH less AS (UPDATE clusters_usagerecord SET gpus = 2 WHERE job_id = '2' RETURNING id)"
                " UPDATE billing_ratedusage SET units = units / 2 WHERE record_id IN (TABLE less)"
            ),
            "gpu1 gpu: 14400 s were allocated, now 7200 s, and no sync wrote that",
        ),
    ],
)
def test_a_row_that_was_changed_behind_its_back_is_named_within_as_many_nights_as_months(
    books: None, statement: str, place: str
) -> None:
    nights(3)
    tamper(statement)
    broken = {proof.month: proof.broken for proof in nights(3, first=NIGHT + timedelta(days=3)) if proof}
    assert any(place in text for text in broken[FEBRUARY]), broken
    assert (broken[JANUARY], broken[MARCH]) == ([], [])


def test_rows_that_are_gone_are_named_each_time_until_they_are_back(books: None) -> None:
    nights(3)
    with as_owner() as owner:
        owner.execute(
            "CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM clusters_usagerecord WHERE job_id = '2'"
        )
        owner.execute("DELETE FROM clusters_usagerecord WHERE job_id = '2'")
    for night in (3, 6):
        nights(3, first=NIGHT + timedelta(days=night))
        assert MonthProof.objects.get(month=FEBRUARY).broken[-1] == "1 of 1 usage records are gone"
    with as_owner() as owner:
        owner.execute("INSERT INTO clusters_usagerecord TABLE kept")
    nights(3, first=NIGHT + timedelta(days=9))
    assert MonthProof.objects.get(month=FEBRUARY).broken == []


def test_late_and_restated_usage_is_no_tampering(books: None) -> None:
    before = LATER - timedelta(days=5)
    nights(3, first=before)
    ingest(
        a_cluster(),
        a_job(job_id="late", started="2026-01-05 10:00", ended="2026-01-05 11:00"),
        a_job(job_id="2", gpus=2, started="2026-02-02 10:00", ended="2026-02-02 11:00"),
    )
    assert not any(proof and proof.broken for proof in nights(3, first=LATER + timedelta(days=5)))
    assert MonthProof.objects.get(month=JANUARY).records == 2
    assert allocated(FEBRUARY) == hours(2)


def test_the_clock_wakes_it_and_a_queue_serves_it() -> None:
    assert queue_of("billing.tasks.prove_a_month") == "reconcile"
    assert "billing.tasks.prove_a_month" in {entry["task"] for entry in SCHEDULE.values()}
