"""The proof finds what is wrong, month by month and place by place; on sound books it changes nothing."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import pytest
from django.db import connection

from billing.models import DailyUsage, DayTotal, PeriodTotal, RatedUsage, UsageSeries
from billing.proof import checks
from clusters.models import UsageRecord
from tests import sharing
from tests.builders import LATER, a_bad_row, a_cluster, a_job, a_plan, a_tenant, ingest, own
from tests.owner import as_owner
from tests.stories import closed, hours

pytestmark = pytest.mark.django_db


JOBS = "every job is rated for whom it was, in full"


def march() -> None:
    """March: 3 GPU-hours billed, 1 nobody's, and from March into April 24 pending, 12 in each."""
    cluster = a_cluster(complete_through="2026-04-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(gpus=3, cpu_milli=4000), a_job(account="stray"), a_bad_row())
    closed("2026-03", vision)
    ingest(cluster, a_job(started="2026-03-31 12:00", ended="2026-04-01 12:00"))


begun, books = sharing.fixtures(march, "books")


def gpu(month: date | None = None) -> dict[str, Fraction]:
    proof = checks.prove(month=month)
    assert proof.holds
    return {part: value for part, value in proof.sums["gpu1", "gpu"].parts.items() if value}


@pytest.fixture(params=[False, True], ids=["since the last", "full"])
def full(request: pytest.FixtureRequest) -> bool:
    """Whether all is recomputed, or what was written to since the proof that is kept of the books."""
    assert checks.prove(moment=LATER).holds
    assert checks.prove().recomputed == []
    return bool(request.param)


def broken(full: bool) -> list[str]:
    proof = checks.prove(full=full)
    assert not proof.holds
    return [check.name for check in proof.checks if check.broken] + [
        f"{cluster} {resource}: {sums.difference}"
        for (cluster, resource), sums in proof.sums.items()
        if sums.difference
    ]


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_case_095_allocated_is_billed_waived_pending_and_unassigned(books: None) -> None:
    assert gpu() == {"allocated": hours(28), "billed": hours(3), "pending": hours(24), "unassigned": hours(1)}
    proof = checks.prove()
    assert proof.sums["gpu1", "cpu"].parts["waived"] == hours(4)
    assert dict(proof.quarantined) == {"gpu1": 1}


def test_a_months_sums_hold_what_lies_in_it(books: None) -> None:
    march, april = date(2026, 3, 1), date(2026, 4, 1)
    assert gpu(march) == {
        "allocated": hours(16),
        "billed": hours(3),
        "pending": hours(12),
        "unassigned": hours(1),
    }
    assert gpu(april) == {"allocated": hours(12), "pending": hours(12)}
    assert gpu(date(2026, 5, 1)) == {}


def test_proving_changes_nothing(books: None) -> None:
    before = [
        list(model.objects.order_by("pk").values())
        for model in (RatedUsage, PeriodTotal, DayTotal, DailyUsage, UsageSeries)
    ]
    checks.prove()
    checks.prove()
    after = [
        list(model.objects.order_by("pk").values())
        for model in (RatedUsage, PeriodTotal, DayTotal, DailyUsage, UsageSeries)
    ]
    assert after == before


def test_unpriced_use_is_pending_and_named_beside(books: None) -> None:
    own(a_tenant("audio-lab"), a_cluster(), "stray")
    sums = checks.prove().sums["gpu1", "gpu"]
    assert sums.parts["pending"] == hours(25)
    assert sums.parts["unassigned"] == 0
    assert sums.unpriced == hours(1)


def test_a_job_that_was_never_rated_is_found(books: None, full: bool) -> None:
    UsageRecord.objects.filter(gpus=3).update(gpus=4)
    assert broken(full) == [JOBS, "gpu1 gpu: 3600"]


def test_rated_use_that_no_job_has_is_found(books: None, full: bool) -> None:
    UsageRecord.objects.filter(gpus=3).update(ended=UsageRecord.objects.filter(gpus=3).values("started"))
    assert broken(full) == [JOBS, "gpu1 gpu: -10800"]  # of what is waived there is no row that could be left


@pytest.mark.parametrize(
    ("statement", "check"),
    [
        (
            "UPDATE billing_periodtotal SET units = units + 1 WHERE resource = 'gpu'",
            "period totals equal rated usage",
        ),
        ("UPDATE billing_daytotal SET units = units + 1", "day totals equal daily usage"),
        ("UPDATE billing_dailyusage SET units = units - 1", "daily usage equals rated usage"),
        ("DELETE FROM billing_dailyusage", "daily usage equals rated usage"),
        ("UPDATE billing_usageseries SET state = 'FAILED'", "daily usage equals rated usage"),
        ("UPDATE billing_ratedjob SET state = 'FAILED'", "daily usage equals rated usage"),
        ("UPDATE billing_periodjobs SET started = started + 1", "what is kept of the jobs of a period"),
        ("DELETE FROM billing_periodtopjob", "what is kept of the jobs of a period"),
        ("DELETE FROM billing_daytotal", "day totals equal daily usage"),
        ("UPDATE billing_invoiceseries SET last_number = 2", "no issued number is missing from its series"),
    ],
)
def test_a_kept_sum_that_is_off_by_one_is_named(books: None, full: bool, statement: str, check: str) -> None:
    sql(statement)
    assert any(name.startswith(check) for name in broken(full))


def test_a_line_that_says_more_than_was_used_is_found(books: None, full: bool) -> None:
    sql("SET CONSTRAINTS ALL IMMEDIATE")
    with as_owner() as cursor:
        cursor.execute("ALTER TABLE billing_invoiceline DISABLE TRIGGER USER")
    sql("UPDATE billing_invoiceline SET seconds_num = seconds_num + 1, amount = amount + 1")
    assert broken(full) == [
        "invoice lines equal the rated usage that they cover",
        "invoice lines cost their seconds at their price",
        "invoice lines add up to their subtotal",
    ]


def test_half_a_cent_is_a_cent_and_nothing_else() -> None:
    """A line of 0.005 is looked at by its exact rule, neighbors are not right by being as near."""
    cluster = a_cluster(complete_through="2026-04-01")
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-02 10:00:00", ended="2026-03-02 10:00:09"))
    closed("2026-03", lab)
    with as_owner() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE billing_invoiceline DISABLE TRIGGER USER")
    for amount in (2, 1, 0, -1):
        sql(f"UPDATE billing_invoiceline SET amount = {amount}")
        names = [check.name for check in checks.prove().checks if check.broken]
        assert ("invoice lines cost their seconds at their price" not in names) is (amount == 1)


@pytest.mark.parametrize(
    ("statement", "check"),
    [
        (
            "DELETE FROM clusters_usagerecord WHERE gpus = 3",
            "every job",
        ),
        (
            "UPDATE clusters_usagerecord SET ended = ended + CASE id % 2 WHEN 0 THEN 600 ELSE -600 END",
            "every job",
        ),
        (
            "UPDATE tenants_ownership SET until = '2026-03-01' WHERE id = (SELECT min(id) FROM tenants_ownership)",
            "every job",
        ),
        (
            """INSERT INTO billing_pricecorrection (number, price_id, model, scale, unit_price, reason)
            SELECT nextval('billing_ratedusage_id_seq'), id, model, scale, unit_price, 'by hand' FROM billing_price;
            UPDATE billing_price p SET corrected_through = c.number FROM billing_pricecorrection c
            WHERE c.price_id = p.id""",
            "corrected prices are looked at again",
        ),
        ("DELETE FROM billing_invoiceseries", "no issued number is missing"),
    ],
)
def test_no_tampering_makes_up_for_itself(books: None, full: bool, statement: str, check: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
    names = broken(full)
    assert any(name.startswith(check) for name in names), names
