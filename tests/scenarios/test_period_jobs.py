"""The most expensive jobs of a period, and how many started in it, are kept instead of looked for."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal

import pytest

from billing.catalog import plans
from billing.models import BillingPeriod, PeriodJobs, PeriodTopJob, Price, RatedJob, Subscription
from billing.proof import checks
from billing.queries import job_parts, jobs
from billing.rating import engine, period_jobs
from billing.rules.meters import PerUnit
from clusters.connectors.base import UsageFact
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.owner import as_owner
from tests.stories import prove
from tests.tiers import thinned

pytestmark = pytest.mark.django_db


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few are kept that small stories meet the floor."""
    monkeypatch.setattr(period_jobs, "KEPT", 10)
    monkeypatch.setattr(period_jobs, "MOST", 14)


def top(tenant: Tenant, month: str, *, limit: int = 8) -> list[str]:
    period = BillingPeriod.objects.get(tenant=tenant, start=at(f"{month}-01"))
    return [job.row.job_id for job in job_parts.top_jobs(tenant, period, limit=limit)]


def looked_for(tenant: Tenant, month: str, *, limit: int = 8) -> list[str]:
    """Apart from what is kept: all jobs of the tenant, in order."""
    period = BillingPeriod.objects.get(tenant=tenant, start=at(f"{month}-01"))
    since, until = jobs.seconds_of(period)
    rows = RatedJob.objects.filter(
        tenant=tenant, started__isnull=False, started__lt=until, started__gte=since - 92 * 86_400
    )
    rows = rows.annotate(cost=jobs.COST_RANK).order_by("-cost", "-cost_units", "-gpu_units", "-record_id")
    ran = [
        row
        for row in rows
        if row.started is not None
        and max((row.ended or row.seen_until or row.started) - 1, row.started) >= since
    ]
    return [row.job_id for row in ran[:limit]]


def started(tenant: Tenant, month: str) -> int:
    kept = PeriodJobs.objects.filter(tenant=tenant, period__start=at(f"{month}-01"))
    return sum(kept.values_list("started", flat=True))


def test_a_large_months_most_expensive_jobs_are_those_that_looking_would_find(few: None) -> None:
    cluster = a_cluster()
    lab = a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    dice = random.Random(7)
    for _ in range(6):
        ingest(
            cluster,
            *(
                a_job(gpus=dice.randrange(1, 9), ended=f"2026-03-{dice.randrange(3, 28):02} 10:00")
                for _ in range(60)
            ),
        )
    assert top(lab, "2026-03") == looked_for(lab, "2026-03")
    assert PeriodTopJob.objects.filter(tenant=lab).count() < 14 < RatedJob.objects.count() == 360
    assert started(lab, "2026-03") == 360
    prove()


@pytest.mark.parametrize(
    "seed",
    [*thinned(range(2), every=2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40))],
)
def test_whatever_becomes_of_jobs_what_is_kept_is_what_looking_would_find(few: None, seed: int) -> None:
    """Runs start, grow, end, are restated as less or as another's; prices fall; accounts change hands."""
    dice = random.Random(seed)
    cluster = a_cluster()
    labs = [a_tenant(f"lab-{n}", plan=a_plan(f"plan-{n}"), accounts=[(cluster, f"acc{n}")]) for n in range(2)]
    cheap = a_plan("cheap", prices=[("gpu-hour", {}, "0.01", LONG_AGO)])
    known: dict[str, UsageFact] = {}
    for turn in range(12):
        facts = [_changed(dice, known.get(number), number) for number in _numbers(dice)]
        known |= {fact.job_id: fact for fact in facts}
        ingest(cluster, *facts)
        if turn == 5:
            Subscription.objects.filter(tenant=labs[0]).update(plan=cheap)
            engine.rate_tenants(labs[:1])
        if turn == 8:
            own(labs[1], cluster, "acc0", since="2026-03-20")
        for lab in labs:
            for period in BillingPeriod.objects.filter(tenant=lab):
                month = f"{period.start:%Y-%m}"
                assert top(lab, month) == looked_for(lab, month), (turn, lab, month)
        prove()
    assert PeriodJobs.objects.filter(floor_id__isnull=False).exists()


def _numbers(dice: random.Random) -> list[str]:
    return [str(number) for number in dice.sample(range(90), 30)]


def _changed(dice: random.Random, before: UsageFact | None, number: str) -> UsageFact:
    start = at("2026-02-20") + timedelta(hours=dice.randrange(900))
    if before is not None and before.started is not None and dice.random() < 0.6:
        start = at("1970-01-01") + timedelta(seconds=before.started)
    until = start + timedelta(hours=dice.choice([0, 1, 5, 30, 400]))
    runs = dice.random() < 0.3 and (before is None or before.ended is None)
    return a_job(
        job_id=number,
        source_key=f"{number}@1771600000",
        submitted=1_771_600_000,
        account=f"acc{dice.randrange(2)}",
        gpus=dice.randrange(9),
        started=int(start.timestamp()),
        ended=None if runs else int(until.timestamp()),
        seen_until=int(until.timestamp()),
        state="RUNNING" if runs else "COMPLETED",
    )


def test_a_job_that_waits_has_not_started(few: None) -> None:
    cluster = a_cluster()
    lab = a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    waits = {"job_id": "7", "source_key": "7@1772330000", "submitted": 1_772_330_000}  # 1 March
    ingest(cluster, a_job(), a_job(**waits, started=None, ended=None, state="PENDING"))
    assert (started(lab, "2026-03"), len(top(lab, "2026-03"))) == (1, 1)
    ingest(cluster, a_job(**waits, started="2026-03-31 23:00", ended="2026-04-01 01:00"))
    assert started(lab, "2026-03") == 2
    assert not PeriodJobs.objects.filter(period__start=at("2026-04-01"), started__gt=0).exists()
    assert top(lab, "2026-03")[0] == top(lab, "2026-04")[0] == "7"
    prove()


def test_a_price_that_is_corrected_moves_its_jobs_and_writes_none_of_them(few: None) -> None:
    cluster = a_cluster()
    models = [
        ("gpu-hour", {"gpu_model": [name]}, price, LONG_AGO) for name, price in (("a100", "2"), ("h100", "3"))
    ]
    lab = a_tenant("vision-lab", plan=a_plan(prices=models), accounts=[(cluster, "vision")])
    ingest(cluster, *(a_job(gpus=1 + n % 8, gpu_model=("a100", "h100")[n % 2]) for n in range(80)))
    dear = top(lab, "2026-03")
    kept = list(PeriodTopJob.objects.order_by("pk").values())
    price = Price.objects.get(gpu_models=["a100"])
    plans.correct_price(price=price, model=PerUnit(Decimal(9)), reason="Agreed on.")
    assert top(lab, "2026-03") == looked_for(lab, "2026-03") != dear
    assert list(PeriodTopJob.objects.order_by("pk").values()) == kept
    prove()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM billing_periodtopjob",
        "UPDATE billing_periodjobs SET started = started + 1",
        "UPDATE billing_periodtopjob SET record_id = record_id + 1000",
        "UPDATE billing_periodjobs SET (floor_cost, floor_units, floor_id) = (1000, 0, 0)",
        "DELETE FROM billing_periodjobs",
    ],
)
def test_what_is_kept_wrong_is_found(few: None, statement: str) -> None:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, *(a_job(gpus=1 + n % 8) for n in range(20)))
    prove()
    with as_owner() as owner:
        owner.execute(statement)
    assert [check.name for check in checks.prove().checks if check.broken] == [
        "what is kept of the jobs of a period is what they are"
    ]
