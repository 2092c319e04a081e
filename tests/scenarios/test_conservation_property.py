"""Whatever happens in whatever order, no second is lost and every cent can be recomputed.

Random jobs, snapshots, owners, zones, prices and closes; after each step the sums close, and what
the tenants owe is computed a second time: from the jobs as they were made up, in plain fractions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from billing.invoicing import month_close
from billing.models import InvoiceLine, InvoiceState, PeriodTotal, Price, Subscription, Verdict
from billing.rating import engine
from clusters.connectors.base import UsageFact
from portal.core.tenants import ownership
from tests.builders import LATER, a_cluster, a_plan, a_tenant, at, ingest
from tests.stories import prove
from tests.tiers import examples

pytestmark = pytest.mark.django_db

FIRST = int(at("2026-02-20").timestamp())
LAST = int(at("2026-05-10").timestamp())
MODELS = {"a100": Fraction("1.13"), "h100": Fraction("2.7")}
RISES = {"a100": (date(2026, 3, 15), Fraction("1.29")), "h100": (date(2026, 4, 1), Fraction("3.01"))}
ZONES = ("UTC", "America/Los_Angeles", "Asia/Kathmandu", "America/Havana")
SHARES = ((1, 1), (1, 7), (3, 7), (1, 4))
ACCOUNTS = ("alpha", "beta")
EXAMPLES = examples(12, 200, short=3)  # without shrinking: a failing story is short enough to read


@dataclass(frozen=True)
class Handover:
    """From `since` on (the beginning: None) the account is the tenant's."""

    account: str
    tenant: int
    since: int | None


@dataclass(frozen=True)
class World:
    jobs: list[UsageFact]
    owners: list[Handover]
    zones: list[str]
    steps: list[tuple[str, int]]


@st.composite
def jobs(draw: st.DrawFn, number: int) -> UsageFact:
    started = draw(st.integers(FIRST, LAST - 10))
    wall = draw(st.one_of(st.integers(0, 7200), st.integers(0, 50 * 86_400)))
    return UsageFact(
        source_key=f"{number}@1", job_id=str(number), user=draw(st.sampled_from(("ben", "cleo"))), state="COMPLETED",
        account=draw(st.sampled_from(ACCOUNTS)), gpus=draw(st.integers(0, 9)),
        gpu_model=draw(st.sampled_from(sorted(MODELS))), gpu_share=draw(st.sampled_from(SHARES)),
        cpu_milli=draw(st.sampled_from((0, 500, 16_000))), submitted=started, started=started,
        gpu_memory_mib=draw(st.sampled_from((0, 0, 40_960))), billing=draw(st.integers(0, 3)),
        ended=min(started + wall, LAST),
        suspended=draw(st.one_of(st.just(0), st.integers(0, min(wall, LAST - started)))),
    )  # fmt: skip


@st.composite
def worlds(draw: st.DrawFn) -> World:
    facts = [draw(jobs(number)) for number in range(draw(st.integers(1, 7)))]
    owners = []
    for account in ACCOUNTS:
        turns = sorted(draw(st.sets(st.integers(FIRST + 1, LAST), max_size=2)))
        begins = [draw(st.sampled_from((None, FIRST))), *turns][: draw(st.integers(0, 3))]
        owners += [Handover(account, draw(st.integers(0, 1)), since) for since in begins]
    handovers = [("own", place) for place in range(len(owners))]
    imports = st.tuples(st.just("import"), st.integers(0, 2**16))
    others = st.one_of(
        imports, st.tuples(st.sampled_from(("close", "snapshot", "price", "revise")), st.integers(0, 2**16))
    )
    steps = draw(st.lists(others, min_size=2, max_size=7))
    for handover in handovers:  # in their order, anywhere between the other steps
        steps.insert(
            draw(st.integers(steps.index(handovers[handover[1] - 1]) + 1 if handover[1] else 0, len(steps))),
            handover,
        )
    return World(facts, owners, [draw(st.sampled_from(ZONES)) for _ in range(2)], steps)


class Story:
    """Plays a world against the database, and remembers what was told in the plainest form."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = a_cluster(complete_through="2027-01-01")
        prices: list[Any] = [
            ("gpu-hour", {"gpu_model": [m]}, str(_decimal(p)), date(2020, 1, 1)) for m, p in MODELS.items()
        ]
        self.plan = a_plan(prices=prices)
        self.tenants = [
            a_tenant(f"tenant-{n}", plan=self.plan, timezone=zone) for n, zone in enumerate(world.zones)
        ]
        # By measures the second tenant is rated, since a plan of it once charged them; the first is not.
        weighed = a_plan("weighed", prices=(), charges=("gpu-memory", "billing"))
        Subscription.objects.create(
            tenant=self.tenants[1], plan=weighed, since=at("2016-01-01"), until=at("2016-06-01")
        )
        self.facts: dict[str, UsageFact] = {}
        self.owned: list[Handover] = []
        self.risen: set[str] = set()

    def play(self) -> None:
        for step, value in self.world.steps:
            getattr(self, step)(value)
            assert prove()["allocated"] == self.allocated()
            assert self.stored_seconds() == self.owed()
        self.own_the_rest()
        self.close(2)
        self.everything_is_billed_to_the_cent()

    # -- what may happen

    def own(self, place: int) -> None:
        owner = self.world.owners[place]
        account, _ = self.cluster.accounts.get_or_create(name=owner.account)
        since = datetime.fromtimestamp(owner.since, UTC) if owner.since is not None else None
        ownership.assign(account=account, tenant=self.tenants[owner.tenant], project="p", since=since)
        self.owned.append(owner)
        engine.rate_accounts([account.pk])

    def own_the_rest(self) -> None:
        for place, owner in enumerate(self.world.owners):
            if owner not in self.owned:
                self.own(place)

    def tell(self, *facts: UsageFact) -> None:
        ingest(self.cluster, *facts)
        for fact in facts:
            before = self.facts.get(fact.source_key)
            both_open = before is not None and before.ended is None and fact.ended is None
            if (
                before is None
                or fact.ended is not None
                or (both_open and (fact.seen_until or 0) >= (before.seen_until or 0))
            ):
                self.facts[fact.source_key] = fact

    def chosen(self, value: int) -> list[UsageFact]:
        """Some of the jobs, some of them twice, in an order that `value` decides."""
        some = [job for place, job in enumerate(self.world.jobs) if value >> place & 1] or self.world.jobs
        turned = some[value % len(some) :] + some[: value % len(some)]
        return turned + turned[: value % 2]

    def import_(self, value: int) -> None:
        self.tell(*self.chosen(value))

    def snapshot(self, value: int) -> None:
        """What a scheduler would have said at some moment: those that still ran then, as running."""
        moment = FIRST + (LAST - FIRST) * (value % 64) // 64
        seen = []
        for job in self.chosen(value):
            assert job.started is not None
            assert job.ended is not None
            if job.started >= moment:
                continue
            running = replace(job, ended=None, seen_until=moment, state="RUNNING", suspended=0)
            seen.append(job if job.ended <= moment else running)
        self.tell(*seen)

    def revise(self, value: int) -> None:
        """A job turns out to have been shorter, of another user and on another GPU."""
        job = self.world.jobs[value % len(self.world.jobs)]
        assert job.started is not None
        assert job.ended is not None
        duration = (job.ended - job.started) * (value % 5) // 5
        other = replace(
            job, ended=job.started + duration, suspended=min(job.suspended, duration), user="dora"
        )
        self.tell(replace(other, gpu_model="h100") if value % 2 else other)

    def price(self, value: int) -> None:
        model = sorted(RISES)[value % 2]
        if model in self.risen:
            return
        self.risen.add(model)
        day, amount = RISES[model]
        price = Price.objects.get(gpu_models=[model])
        Price.objects.filter(pk=price.pk).update(valid_until=day)
        price.pk, price.position, price.valid_from, price.unit_price = None, 9, day, _decimal(amount)
        price.save()
        engine.rate_tenants(self.tenants)

    def close(self, value: int) -> None:
        """All months up to one; each is closed after the one before it."""
        moment = at("2026-12-01")
        for year, month in [(2026, 1), (2026, 2), (2026, 3), (2026, 4), (2026, 5)][: value % 3 + 3]:
            for result in month_close.close_month(
                tenants=self.tenants, year=year, month=month, moment=moment, now=LATER
            ):
                assert result.outcome in {"issued", "already issued", "nothing to bill", "carried forward"}, (
                    result
                )

    # -- the same once more, in plain fractions

    def allocated(self) -> Fraction:
        return sum(
            (_seconds_between(job, FIRST, LAST) * _size(job) for job in self.facts.values()), Fraction(0)
        )

    def owed(self) -> dict[tuple[int, str, Fraction], Fraction]:
        """(tenant, first day of the period, price) → GPU-seconds."""
        owed: dict[tuple[int, str, Fraction], Fraction] = defaultdict(Fraction)
        for job in self.facts.values():
            borders = {FIRST, LAST} | {own.since for own in self.owned if own.since is not None}
            for zone in self.world.zones:
                borders |= {_midnight(date(2026, month, 1), zone) for month in range(2, 7)}
                borders |= {_midnight(day, zone) for day, _ in RISES.values()}
            for low, high in pairwise(sorted(borders)):
                owner = self.owner(job.account, low)
                seconds = _seconds_between(job, low, high) * _size(job)
                if owner is None or not seconds:
                    continue
                today = datetime.fromtimestamp(low, ZoneInfo(self.world.zones[owner])).date()
                day, risen = RISES[job.gpu_model]
                dear = job.gpu_model in self.risen and today >= day
                owed[owner, f"{today:%Y-%m}", risen if dear else MODELS[job.gpu_model]] += seconds
        return dict(owed)

    def owner(self, account: str, moment: int) -> int | None:
        fitting = [
            own for own in self.owned if own.account == account and (own.since is None or own.since <= moment)
        ]
        return fitting[-1].tenant if fitting else None

    def stored_seconds(self) -> dict[tuple[int, str, Fraction], Fraction]:
        totals: dict[tuple[int, str, Fraction], Fraction] = defaultdict(Fraction)
        prices = {price.pk: Fraction(price.unit_price) for price in Price.objects.all()}
        for row in PeriodTotal.objects.filter(verdict=Verdict.CHARGED).select_related("period"):
            assert row.price_id is not None
            totals[self.key(row.tenant_id, row.period.start, row.period.timezone, prices[row.price_id])] += (
                Fraction(int(row.units), row.share_den)
            )
        return {key: value for key, value in totals.items() if value}

    def everything_is_billed_to_the_cent(self) -> None:
        owed = {key: (value, _cents(value, key[2])) for key, value in self.owed().items()}
        billed: dict[tuple[int, str, Fraction], tuple[Fraction, int]] = {}
        for line in InvoiceLine.objects.filter(invoice__state=InvoiceState.ISSUED).select_related(
            "service_period"
        ):
            period = line.service_period
            key = self.key(line.tenant_id, period.start, period.timezone, Fraction(line.unit_price or 0))
            seconds, cents = billed.get(key, (Fraction(0), 0))
            billed[key] = seconds + Fraction(int(line.seconds_num), line.seconds_den), cents + line.amount
        for tenant in self.tenants:
            ours = {key: value for key, value in owed.items() if self.tenants[key[0]] == tenant}
            theirs = {
                key: value for key, value in billed.items() if self.tenants[key[0]] == tenant and any(value)
            }
            if ours != theirs:  # a credit that no invoice has taken up yet
                assert sum(cents for _, cents in ours.values()) < sum(cents for _, cents in theirs.values())

    def key(self, tenant_id: int, start: datetime, zone: str, price: Fraction) -> tuple[int, str, Fraction]:
        place = [tenant.pk for tenant in self.tenants].index(tenant_id)
        return place, f"{start.astimezone(ZoneInfo(zone)):%Y-%m}", price


def _seconds_between(job: UsageFact, low: int, high: int) -> int:
    """Seconds held in [low, high); suspension has no position, so it is spread evenly over the run."""
    finish = job.ended if job.ended is not None else job.seen_until
    assert job.started is not None
    assert finish is not None
    wall = finish - job.started

    def until(moment: int) -> int:
        inside = min(max(moment - job.started, 0), wall)  # type: ignore[operator]
        return int(Fraction(inside * (wall - job.suspended), wall)) if wall else 0

    return until(high) - until(low)


def _size(job: UsageFact) -> Fraction:
    return job.gpus * Fraction(*job.gpu_share)


def _midnight(day: date, zone: str) -> int:
    """The first second of the day: the one whose predecessor belongs to the day before."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
    moment = int((noon - timedelta(hours=15)).timestamp())
    while datetime.fromtimestamp(moment, ZoneInfo(zone)).date() < day:
        moment += 900
    return moment


def _decimal(price: Fraction) -> Decimal:
    return Decimal(price.numerator) / price.denominator


def _cents(seconds: Fraction, price: Fraction) -> int:
    return int(seconds * price / 36 + Fraction(1, 2))


setattr(Story, "import", Story.import_)


@pytest.mark.swept
@settings(
    max_examples=EXAMPLES,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(world=worlds())
def test_case_095_the_sums_close_and_every_cent_is_recomputed(world: World) -> None:
    with transaction.atomic():
        Story(world).play()
        transaction.set_rollback(True)
