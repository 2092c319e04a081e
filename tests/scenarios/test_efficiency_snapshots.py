"""What the page *Efficiency* of a large tenant shows is what its runs say, as of the moment that it names."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from msgspec.structs import replace

from billing.catalog import plans
from billing.documents.job_users import erase_users
from billing.models import EfficiencySnapshot, Price
from billing.reports import efficiency, efficiency_snapshots, snapshots, waste
from billing.reports.efficiency import BYS, KINDS, Efficiency
from billing.reports.reporting import of_tenant
from billing.reports.shapes import By
from billing.reports.tasks import forget_old_efficiency
from billing.reports.waste import Kind
from billing.rules.meters import PerUnit
from clusters.connectors.base import UsageFact
from clusters.models import UtilisationHour
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, tenant_scope
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, busy, ingest, own
from tests.scenarios.reports import worked
from tests.tiers import thinned

pytestmark = pytest.mark.django_db

MARCH = (int(at("2026-03-01").timestamp()), int(at("2026-04-01").timestamp()))
NOW = at("2026-04-20 12:00")
HOUR = 3600
PRICES = {"a100": "2.21", "h100": "3.75", "l4": "0.81"}
SMALL = Fraction(3, 10)


@pytest.fixture(autouse=True)
def _every_tenant_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)


def look(
    lab: Tenant,
    by: By | None = By.PROJECT,
    *,
    days: tuple[int, int] = MARCH,
    moment: datetime = NOW,
    top_jobs: bool = True,
    kind: Kind | None = None,
    may_request: bool = True,
) -> Efficiency | None:
    with tenant_scope(lab):
        figures = efficiency.load(
            lab, since=days[0], until=days[1], moment=moment, by=by, top_jobs=top_jobs, kind=kind,
            may_request=may_request,
        )  # fmt: skip
    return figures if isinstance(figures, Efficiency) else None


def shown(lab: Tenant, by: By | None = By.PROJECT, **values: object) -> Efficiency:
    figures = look(lab, by, **values)  # type: ignore[arg-type]
    assert figures is not None
    return figures


def renewed(lab: Tenant, days: tuple[int, int] = MARCH) -> None:
    """A worker computes them as of now."""
    EfficiencySnapshot.objects.update(as_of=NOW - timedelta(days=1))
    look(lab, days=days)
    outbox.drain()
    EfficiencySnapshot.objects.update(as_of=NOW)


def as_computed_from_the_runs(lab: Tenant, days: tuple[int, int] = MARCH) -> None:
    """All groupings, findings and their jobs: the snapshot has them as statements over the runs do."""
    since, until = days
    with acting_scope(lab):
        cheaper = waste.cheaper_models(lab)
    for by in BYS:
        figures = shown(lab, by, days=days)
        with tenant_scope(lab):
            top = 0 if by is By.POD else efficiency_snapshots.TOP_JOBS
            runs = of_tenant(
                lab, since=since, until=until, by=by, limit=efficiency_snapshots.PODS, top_jobs=top
            )
            assert figures.report(by, top_jobs=True) == runs
    for kind in KINDS:
        figures = shown(lab, None, days=days, kind=kind)
        with tenant_scope(lab):
            runs_waste = waste.of_tenant(
                lab, since=since, until=until, cheaper=cheaper, kind=kind, jobs=efficiency_snapshots.JOBS
            )
            assert figures.waste(kind) == runs_waste


@dataclass
class Site:
    """A tenant with runs that telemetry knows by the hour, and what it is told of them."""

    dice: random.Random
    lab: Tenant = field(init=False)
    facts: dict[str, UsageFact] = field(default_factory=dict)
    hours: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # busy, covered
    projects: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        prices = [("gpu-hour", {"gpu_model": [model]}, price, LONG_AGO) for model, price in PRICES.items()]
        self.cluster = a_cluster(complete_through="2026-04-20")
        self.projects = {"vision": "Vision", "speech": "Speech"}
        self.lab = a_tenant("lab", plan=a_plan(prices=prices))
        for account, project in self.projects.items():
            own(self.lab, self.cluster, account, project=project)

    def runs(self, count: int) -> None:
        """New ones, of which some began before March or end after it."""
        new = [self._run() for _ in range(count)]
        self.facts |= {fact.source_key: fact for fact in new}
        ingest(self.cluster, *new)
        for fact in new:
            self.telemetry(fact)

    def _run(self) -> UsageFact:
        dice = self.dice
        start = MARCH[0] + HOUR * dice.randrange(-30, 31 * 24)
        length = HOUR * dice.randrange(1, 9)
        return a_job(
            account=dice.choice(["vision", "speech"]), user=dice.choice(["ann", "ben", "cy"]),
            gpus=dice.choice([1, 1, 2, 8]), gpu_model=dice.choice([*PRICES]), started=start, ended=start + length,
            state=dice.choice(["COMPLETED", "FAILED"]), time_limit=dice.choice([None, length, 6 * length]),
        )  # fmt: skip

    def telemetry(self, fact: UsageFact) -> None:
        """Of some of its hours; told again, other values are in their place."""
        assert fact.started is not None
        assert fact.ended is not None
        for hour in range(fact.started, fact.ended, HOUR):
            if self.dice.random() < 0.2:
                continue
            share = self.dice.choice([0, 0, 5, 20, 25, 50, 100])  # per cent that the devices worked
            key, covered = (fact.source_key, hour), HOUR * fact.gpus
            self.hours[key] = covered * share // 100, covered
        rows = [
            busy(key, f"{datetime.fromtimestamp(hour, NOW.tzinfo):%Y-%m-%d %H:%M}", str(at_work), covered)
            for (key, hour), (at_work, covered) in self.hours.items()
            if key == fact.source_key
        ]
        ingest(self.cluster, *rows)

    def restated(self) -> None:
        """One of them ran for an hour alone, and was cancelled."""
        fact = self.dice.choice([*self.facts.values()])
        assert fact.started is not None
        assert fact.ended is not None
        changed = replace(fact, ended=fact.started + HOUR, state="CANCELLED")
        self.facts[fact.source_key] = changed
        self.hours = {
            key: value
            for key, value in self.hours.items()
            if key[0] != fact.source_key or key[1] < fact.started + HOUR
        }
        ingest(self.cluster, changed)
        UtilisationHour.objects.filter(
            record__source_key=fact.source_key, hour__gte=fact.started + HOUR
        ).delete()

    def cheaper(self, model: str) -> Fraction | None:
        less = [Fraction(price) for price in PRICES.values() if Fraction(price) < Fraction(PRICES[model])]
        return max(less, default=None)


def findings_of(site: Site, days: tuple[int, int]) -> dict[str, tuple[Fraction, Fraction, int]]:
    """By kind GPU-seconds, dollars and jobs, hour by hour as docs/explanation/efficiency.md has it."""
    seconds: dict[str, Fraction] = defaultdict(Fraction)
    money: dict[str, Fraction] = defaultdict(Fraction)
    jobs: dict[str, set[str]] = defaultdict(set)

    def add(kind: str, key: str, amount: Fraction, rate: Fraction) -> None:
        if amount:
            seconds[kind] += amount
            money[kind] += amount * rate / HOUR
            jobs[kind].add(key)

    for key, fact in site.facts.items():
        assert fact.started is not None
        assert fact.ended is not None
        price = Fraction(PRICES[fact.gpu_model])
        if fact.started >= days[1] or fact.ended <= days[0]:
            continue
        hours = {
            hour: value
            for (run, hour), value in sorted(site.hours.items())
            if run == key and days[0] <= hour < days[1]
        }
        idle = {hour for hour, (at_work, covered) in hours.items() if at_work * 100 < covered}
        at_work = [hour for hour in hours if hour not in idle]
        most = max((Fraction(hours[hour][0] * fact.gpus, hours[hour][1]) for hour in at_work), default=None)
        last = max(at_work, default=None)
        tail = sum(hours[hour][1] for hour in idle if last is not None and hour > last)
        for hour, (used, covered) in hours.items():
            if hour in idle:
                kind = "idle-between"
                if last is None:
                    kind = "zero-use"
                elif hour > last and tail >= 2 * HOUR * fact.gpus:
                    kind = "idle-tail"
                add(kind, key, Fraction(covered - used), price)
            elif most is not None and (peak := -(-most.numerator // most.denominator)) < fact.gpus:
                add("too-many-gpus", key, Fraction(covered * (fact.gpus - peak), fact.gpus), price)
            elif (
                fact.gpus == 1
                and most is not None
                and most <= SMALL
                and (less := site.cheaper(fact.gpu_model))
            ):
                add("too-large-model", key, Fraction(covered), price - less)
        limit, ran = fact.time_limit, fact.ended - fact.started
        if (
            fact.state == "COMPLETED"
            and limit
            and fact.ended <= days[1]
            and limit >= 4 * ran
            and limit - ran >= HOUR
        ):
            add("time-limit", key, Fraction(fact.gpus * (limit - ran)), Fraction(0))
    return {kind: (seconds[kind], money[kind], len(jobs[kind])) for kind in seconds}


def figures(lab: Tenant, days: tuple[int, int]) -> dict[str, tuple[Fraction, Fraction, int]]:
    with tenant_scope(lab):
        found = shown(lab, None, days=days).waste().findings
    return {one.kind.value: (one.seconds, one.money.get("USD", Fraction(0)), one.jobs) for one in found}


@pytest.mark.parametrize(
    "seed",
    [*thinned(range(2), every=2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))],
)
def test_snapshots_say_what_each_hour_of_each_run_says_whatever_comes_late_or_changes(seed: int) -> None:
    site = Site(random.Random(seed))
    part = (MARCH[0] + 5 * 86_400, MARCH[0] + 6 * 86_400)
    site.runs(40)
    for turn in range(4):
        for days in (MARCH, part):
            renewed(site.lab, days)
            as_computed_from_the_runs(site.lab, days)
            assert figures(site.lab, days) == findings_of(site, days)
        match turn:
            case 0:
                site.runs(10)  # which came late
            case 1:
                for _ in range(6):
                    site.restated()
            case 2:
                for fact in site.dice.sample([*site.facts.values()], 12):
                    site.telemetry(fact)
                own(site.lab, site.cluster, "speech", project="Vision", since="2026-03-06 12:00")


def test_it_is_requested_once_and_stands_while_a_worker_computes_newer_figures() -> None:
    site = Site(random.Random(5))
    site.runs(5)
    assert look(site.lab) is None
    assert look(site.lab, By.USER) is None
    requests = OutboxMessage.objects.filter(task="billing.tasks.refresh_efficiency")
    assert requests.count() == 1
    outbox.drain()
    first = shown(site.lab)
    assert (first.is_kept, first.is_pending) == (True, False)
    EfficiencySnapshot.objects.update(as_of=NOW, seconds=0)
    site.runs(20)
    assert shown(site.lab, moment=NOW + timedelta(minutes=4)).is_pending is False
    old = shown(site.lab, moment=NOW + timedelta(minutes=5))
    assert (old.is_pending, old.as_of) == (True, NOW)
    assert shown(site.lab, moment=NOW + timedelta(minutes=5)).is_pending
    with tenant_scope(site.lab):
        before = old.report(By.PROJECT).jobs
    assert requests.count() == 2
    outbox.drain()
    with tenant_scope(site.lab):
        new = shown(site.lab)
        assert (new.report(By.PROJECT).jobs > before, new.is_pending) == (True, False)
    EfficiencySnapshot.objects.update(as_of=NOW, seconds=12)  # 100 times as long is 20 minutes
    assert not shown(site.lab, moment=NOW + timedelta(minutes=19)).is_pending
    assert shown(site.lab, moment=NOW + timedelta(minutes=20)).is_pending


def test_a_corrected_price_shows_at_once_and_days_that_go_on_are_one_snapshot() -> None:
    site = Site(random.Random(6))
    site.runs(20)
    inside = at("2026-03-20 12:00")
    through = [(MARCH[0], int(at(day).timestamp())) for day in ("2026-03-21", "2026-03-22", "2026-04-01")]
    assert look(site.lab, days=through[0], moment=inside) is None
    outbox.drain()
    EfficiencySnapshot.objects.update(as_of=inside)
    for days in through:
        assert shown(site.lab, days=days, moment=inside).as_of == inside
    assert look(site.lab, days=through[0], moment=inside + timedelta(days=1)) is None  # they are over now
    renewed(site.lab)
    plans.correct_price(
        price=Price.objects.get(gpu_models=["h100"]), model=PerUnit(Decimal("4.50")), reason="as agreed"
    )
    since, until = MARCH
    with acting_scope(site.lab):
        cheaper = waste.cheaper_models(site.lab)
    with tenant_scope(site.lab):
        for by in (By.PROJECT, By.USER):
            assert shown(site.lab, by).report(by) == of_tenant(site.lab, since=since, until=until, by=by)
        unused = waste.of_tenant(site.lab, since=since, until=until, cheaper=cheaper)
        assert shown(site.lab, None).waste() == unused
    renewed(site.lab)  # which are the most expensive changes
    as_computed_from_the_runs(site.lab)


def test_nothing_is_written_for_whoever_may_not_and_few_wait_at_once() -> None:
    site = Site(random.Random(7))
    site.runs(5)
    figures_now = shown(site.lab, may_request=False)
    assert (figures_now.is_kept, EfficiencySnapshot.objects.count()) == (False, 0)
    days = [(MARCH[0], MARCH[0] + day * 86_400) for day in range(1, 9)]
    for one in days:
        assert look(site.lab, days=one) is None
    assert EfficiencySnapshot.objects.count() == snapshots.WAITING
    outbox.drain()
    assert look(site.lab, days=days[7]) is None
    assert EfficiencySnapshot.objects.filter(requested_at__isnull=False).count() == 1


def test_a_request_whose_task_failed_is_made_again_and_takes_no_place_from_others() -> None:
    site = Site(random.Random(10))
    site.runs(5)
    for day in range(1, 1 + snapshots.WAITING):
        assert look(site.lab, days=(MARCH[0], MARCH[0] + day * 86_400)) is None
    OutboxMessage.objects.all().delete()  # as if given up
    assert look(site.lab) is None
    assert EfficiencySnapshot.objects.count() == snapshots.WAITING
    assert look(site.lab, moment=NOW + snapshots.STUCK) is None
    assert look(site.lab, days=(MARCH[0], MARCH[0] + 86_400), moment=NOW + snapshots.STUCK) is None
    assert OutboxMessage.objects.count() == 2
    outbox.drain()
    assert shown(site.lab).is_kept


def test_days_without_end_take_no_worker_of_others_and_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "MOST_KEPT", 3)
    site = Site(random.Random(11))
    site.runs(5)
    for day in range(1, 7):
        assert look(site.lab, days=(MARCH[0], MARCH[0] + day * 86_400)) is None
        outbox.drain()
    assert EfficiencySnapshot.objects.count() == 3
    EfficiencySnapshot.objects.update(as_of=NOW, seconds=snapshots.HOURLY // 3)
    assert look(site.lab) is None
    assert EfficiencySnapshot.objects.count() == 3  # not requested before the hour is over
    assert look(site.lab, moment=NOW + timedelta(hours=1)) is None
    assert EfficiencySnapshot.objects.filter(requested_at__isnull=False).count() == 1


def test_a_snapshot_goes_when_nobody_looks_and_when_people_are_erased() -> None:
    site = Site(random.Random(8))
    site.runs(5)
    renewed(site.lab)
    EfficiencySnapshot.objects.update(as_of=NOW - timedelta(days=400))
    assert look(site.lab, days=(MARCH[0], MARCH[0] + 86_400)) is None
    outbox.drain()
    forget_old_efficiency()
    assert EfficiencySnapshot.objects.count() == 1
    erase_users(site.lab)
    assert EfficiencySnapshot.objects.count() == 0


def test_a_failure_leaves_what_was_there_and_another_tenant_has_its_own() -> None:
    site = Site(random.Random(9))
    site.runs(5)
    other = a_tenant("other", plan=a_plan("other"), accounts=[(site.cluster, "other")])
    ingest(site.cluster, a_job(job_id="theirs", account="other"))
    worked("theirs", "2026-03-02 10:00", "0")
    renewed(site.lab)
    renewed(other)
    before = EfficiencySnapshot.objects.get(tenant=site.lab)
    with tenant_scope(other):
        assert list(EfficiencySnapshot.objects.values_list("tenant", flat=True)) == [other.pk]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waste, "rows_of_tenant", None)
        EfficiencySnapshot.objects.update(as_of=NOW - timedelta(days=1))
        assert shown(site.lab).is_pending
        assert outbox.drain() == 0
        after = EfficiencySnapshot.objects.get(tenant=site.lab)
        assert (after.answers, after.requested_at) == (before.answers, NOW)
