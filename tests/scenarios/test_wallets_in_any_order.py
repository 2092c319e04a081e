"""Booked however often, in whichever order: a wallet holds what its grants, its use and the time make of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction
from django.db.models import Sum
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from billing.models import GrantEvery, Wallet, WalletEntry, WalletGrant, WalletScope
from billing.proof.checks import prove
from billing.rules.money import Money
from billing.rules.wallet import Piece
from billing.wallets import booking, clawback, grants, wallet_holds, wallet_terms
from billing.wallets.entries import Booking, post
from billing.wallets.wallet_terms import Rule
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.documentation import table
from tests.scenarios import oracle_wallets
from tests.scenarios.oracle_wallets import Gift, Job, Story
from tests.tiers import examples

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def a_lab(currency: str = "USD", price: str = "1.00", zone: str = "UTC") -> tuple[Cluster, Tenant]:
    plan = a_plan("prepaid", currency, prices=[("gpu-hour", {}, price, LONG_AGO)], settles="wallet")
    cluster = a_cluster()
    return cluster, a_tenant(plan=plan, accounts=[(cluster, "vision")], timezone=zone)


def a_wallet(
    tenant: Tenant, *rules: oracle_wallets.Rule, unit: str = "USD", since: str = "2026-08-01"
) -> Wallet:
    scheme = wallet_terms.set_scheme(
        tenant=tenant, unit=unit, scope=WalletScope.TENANT, overdraft=10**12, since=at(since)
    )
    for rule in rules:
        wallet_terms.set_rule(
            scheme=scheme,
            rule=Rule(
                name=rule.name,
                amount=rule.amount,
                every=GrantEvery(rule.every),
                begins_at=scheme.since,
                cap=rule.cap,
                priority=rule.priority,
                lasts_days=rule.lasts,
            ),
        )
    return Wallet.objects.get(scheme=scheme)


def balance() -> str:
    return Money.from_minor(Wallet.objects.get().balance, "USD").text


def holds() -> None:
    broken = [sentence for check in prove().checks if "wallet" in check.name for sentence in check.broken]
    assert broken == []


# -- the two examples of docs/explanation/wallets.md


@pytest.mark.parametrize("order", ["grant first", "job first"])
def test_a_grant_that_pays_a_debt_and_expires_leaves_nothing_when_its_job_is_corrected(order: str) -> None:
    cluster, tenant = a_lab()
    wallet = a_wallet(tenant)
    expected = [
        row[order]
        for row in table(
            "explanation/wallets.md", "Worked example: a job is corrected after its grant expired"
        )
    ]

    def give() -> None:
        noon, ends = at("2026-09-01 12:00"), date(2026, 9, 10)
        grants.grant(wallet=wallet, amount=100_00, key="R1", who="op", moment=noon, expires_on=ends)

    def use(gpus: int, on: str) -> None:
        ingest(
            cluster, a_job(source_key="7", gpus=gpus, started="2026-09-01 10:00", ended="2026-09-01 11:00")
        )
        booking.book(tenant=tenant, moment=at(on))

    balances = []
    for first in (give, lambda: use(100, "2026-09-01 12:00"))[:: 1 if order == "grant first" else -1]:
        first()
        balances.append(balance())
    grants.tend(moment=at("2026-09-13"))
    balances.append(balance())
    use(1, "2026-09-20")
    balances.append(balance())
    assert balances == expected
    assert WalletGrant.objects.get().expired == 99_00
    returned = WalletEntry.objects.filter(side="balance", at=at("2026-09-20")).exclude(amount=0)
    assert all(entry.day == date(2026, 9, 1) or entry.grant is not None for entry in returned)
    holds()


def test_a_debt_of_days_before_is_paid_and_expires_with_its_grant_all_the_same() -> None:
    cluster, tenant = a_lab()
    wallet = a_wallet(tenant)
    ingest(cluster, a_job(source_key="7", gpus=100, started="2026-08-31 10:00", ended="2026-08-31 11:00"))
    booking.book(tenant=tenant, moment=at("2026-08-31 12:00"))
    grants.grant(
        wallet=wallet,
        amount=100_00,
        key="R1",
        who="op",
        moment=at("2026-09-01"),
        expires_on=date(2026, 9, 10),
    )
    assert balance() == "0.00"
    ingest(cluster, a_job(source_key="7", gpus=1, started="2026-08-31 10:00", ended="2026-08-31 11:00"))
    booking.book(tenant=tenant, moment=at("2026-09-20"))
    assert balance() == "0.00"
    holds()


@pytest.mark.parametrize("every", [1, 8, 24])
def test_a_cap_looks_at_each_hour_however_often_it_is_booked(every: int) -> None:
    cluster, tenant = a_lab()
    a_wallet(tenant, oracle_wallets.Rule("hourly", "hour", 1_00, cap=10_00))
    midnight = at("2026-09-01")
    expected = {
        row["until"]: row["balance"]
        for row in table("explanation/wallets.md", "Worked example: a cap, by the hour")
    }
    grants.tend(moment=midnight)
    assert balance() == expected["00:00"]
    for hour in range(every, 25, every):
        until = midnight + HOUR * hour
        began = until - HOUR * every
        ingest(cluster, a_job(source_key=f"{hour}", started=str(began)[:16], ended=str(until)[:16]))
        booking.book(tenant=tenant, moment=until)
        assert balance() == expected.get(f"{hour:02d}:00", "10.00")
    holds()


def test_use_that_becomes_known_late_lets_an_hour_that_gave_nothing_give() -> None:
    cluster, tenant = a_lab()
    a_wallet(tenant, oracle_wallets.Rule("hourly", "hour", 1_00, cap=10_00))
    grants.tend(moment=at("2026-09-01 12:00"))
    ingest(cluster, a_job(gpus=3, started="2026-09-01 02:00", ended="2026-09-01 03:00"))
    booking.book(tenant=tenant, moment=at("2026-09-01 12:00"))
    assert balance() == "10.00"
    assert WalletGrant.objects.filter(granted_at__gte=at("2026-09-01")).count() == 3
    ingest(cluster, a_job(source_key="late", gpus=9, started="2026-08-30 02:00", ended="2026-08-30 03:00"))
    booking.book(tenant=tenant, moment=at("2026-09-01 13:00"))
    assert balance() == "10.00"
    holds()


def test_a_cap_gives_out_of_a_debt_up_to_it() -> None:
    cluster, tenant = a_lab()
    a_wallet(tenant, oracle_wallets.Rule("monthly", "month", 30_00, cap=10_00))
    ingest(cluster, a_job(gpus=15, started="2026-08-20 10:00", ended="2026-08-20 11:00"))
    booking.book(tenant=tenant, moment=at("2026-08-21"))
    assert balance() == "-5.00"
    grants.tend(moment=at("2026-09-01"))
    assert balance() == "10.00"
    assert WalletGrant.objects.latest("pk").amount == 15_00
    holds()


def test_a_refund_of_a_top_up_that_is_known_late_brings_the_daily_credit_of_all_days_since() -> None:
    _, tenant = a_lab()
    wallet = a_wallet(tenant, oracle_wallets.Rule("daily", "day", 3_00, cap=12_00, lasts=1))
    top_up = grants.grant(wallet=wallet, amount=20_00, key="ch_1", who="ada", moment=at("2026-08-01"))
    grants.tend(moment=at("2026-08-20"))
    assert balance() == "20.00"
    clawback.take_back(grant=top_up, amount=20_00, why="Refunded", moment=at("2026-08-02 12:00"))
    daily = WalletGrant.objects.exclude(rule=None)
    assert list(daily.values_list("amount", flat=True)) == [3_00] * 20
    for moment in ("2026-08-20", "2026-08-21"):
        grants.tend(moment=at(moment))
        assert balance() == "12.00"  # today's, and of three days that expired and is not gone yet
        holds()


def test_the_proof_sees_a_day_that_another_grant_has_paid_for() -> None:
    cluster, tenant = a_lab()
    wallet = a_wallet(tenant)
    for key in ("R1", "R2"):
        grants.grant(wallet=wallet, amount=10_00, key=key, who="op", moment=at("2026-09-01"))
    ingest(cluster, a_job(gpus=4, started="2026-09-01 10:00", ended="2026-09-01 11:00"))
    booking.book(tenant=tenant, moment=at("2026-09-02"))
    holds()
    first, second = WalletGrant.objects.order_by("key")
    moved = [Piece(first.pk, 4_00), Piece(second.pk, -4_00)]
    post(wallet, Booking(moved, None, at("2026-09-02"), memo="By hand", day=date(2026, 9, 1)))
    (check,) = [check for check in prove().checks if check.broken]
    assert check.name == "wallets hold what their grants and days leave"
    assert check.broken == ["USD wallet Vision Lab of vision-lab: Use of 2026-09-01, paid otherwise"]


# -- any story, in any order

NOW = at("2026-03-20 12:00")
SINCE = at("2026-03-01")
RULES = (
    oracle_wallets.Rule("hourly", "hour", 1_00, cap=10_00),
    oracle_wallets.Rule("short", "day", 3_00, cap=20_00, lasts=2, priority=50),
    oracle_wallets.Rule("daily", "day", 1_50, lasts=3),
    oracle_wallets.Rule("monthly", "month", 30_00),
    oracle_wallets.Rule("first", "once", 25_00, lasts=5),
)
PRICES = {"USD": (100, "1.37"), "TOK": (10**6, "0.333333")}

moments = st.integers(0, int((NOW - SINCE).total_seconds()) // 900 - 1).map(
    lambda quarter: SINCE + timedelta(minutes=15 * quarter)
)


@dataclass(frozen=True)
class World:
    """What happens, and in which order it becomes known; `jobs` are told once as a draft, and then as they were."""

    zone: str
    currency: str
    rules: tuple[oracle_wallets.Rule, ...]
    jobs: tuple[tuple[datetime, int, int, int], ...]  # begin, seconds, GPUs, seconds of the draft
    gifts: tuple[Gift, ...]
    spent: tuple[tuple[datetime, int], ...]
    handed_over: datetime | None
    order: tuple[tuple[str, int], ...]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    zone = draw(st.sampled_from(("UTC", "America/Los_Angeles", "Asia/Kathmandu")))
    jobs = draw(
        st.lists(
            st.tuples(moments, st.integers(60, 60 * 3600), st.integers(1, 6), st.integers(0, 60 * 3600)),
            min_size=1,
            max_size=4,
        )
    )
    gifts = []
    for place in range(draw(st.integers(0, 3))):
        when, amount, lasts = draw(moments), draw(st.integers(1, 90_00)), draw(st.none() | st.integers(1, 8))
        expires = None if lasts is None else when.astimezone(ZoneInfo(zone)).date() + timedelta(days=lasts)
        back = draw(st.sampled_from((0, 0, amount, amount // 2)))
        gifts.append(Gift(f"R{place}", when, amount, draw(st.sampled_from((10, 100))), expires, back))
    spent = draw(st.lists(st.tuples(moments, st.integers(1, 40_00)), max_size=2))
    steps = [("draft", place) for place in range(len(jobs))] + [
        ("gift", place) for place in range(len(gifts))
    ]
    steps += [("spend", place) for place in range(len(spent))]
    handed_over = draw(st.none() | moments)
    steps += [("hand_over", 0)] if handed_over else []
    steps += [("book", draw(st.integers(1, 19))) for _ in range(draw(st.integers(0, 4)))]
    steps += [("tend", draw(st.integers(1, 19))) for _ in range(draw(st.integers(0, 2)))]
    order = list(draw(st.permutations(steps)))
    for kind, later in (("draft", "job"), ("gift", "back")):
        for place in [place for name, place in order if name == kind]:
            order.insert(draw(st.integers(order.index((kind, place)) + 1, len(order))), (later, place))
    rules = draw(st.lists(st.sampled_from(RULES), unique=True, max_size=3))
    return World(
        zone, draw(st.sampled_from(sorted(PRICES))), tuple(rules), tuple(jobs), tuple(gifts), tuple(spent), handed_over,
        tuple(order),
    )  # fmt: skip


class Play:
    """Plays a world against the database, step by step."""

    def __init__(self, world: World) -> None:
        self.world = world
        _, price = PRICES[world.currency]
        self.cluster, self.tenant = a_lab(world.currency, price, world.zone)
        plan = self.tenant.subscriptions.get().plan
        self.other = a_tenant("speech", plan=plan, timezone=world.zone)
        self.wallets = [
            a_wallet(lab, *world.rules, unit=world.currency, since="2026-03-01")
            for lab in (self.tenant, self.other)
        ]

    def fact(self, place: int, seconds: int) -> UsageFact:
        begun, _, gpus, _ = self.world.jobs[place]
        start = int(begun.timestamp())
        return a_job(
            source_key=f"{place}@1", job_id=f"{place}", gpus=gpus, started=start, ended=start + seconds
        )

    def draft(self, place: int) -> None:
        ingest(self.cluster, self.fact(place, self.world.jobs[place][3]))

    def job(self, place: int) -> None:
        ingest(self.cluster, self.fact(place, self.world.jobs[place][1]))

    def gift(self, place: int) -> None:
        gift = self.world.gifts[place]
        grants.grant(
            wallet=self.wallets[0], amount=gift.amount, key=gift.name, who="op", moment=gift.at, priority=gift.priority,
            expires_on=gift.expires,
        )  # fmt: skip

    def back(self, place: int) -> None:
        gift = self.world.gifts[place]
        if gift.back:
            grant = WalletGrant.objects.get(key=gift.name)
            clawback.take_back(grant=grant, amount=gift.back, why="It went back.", moment=NOW)

    def spend(self, place: int) -> None:
        when, amount = self.world.spent[place]
        wallet_holds.spend(wallet=self.wallets[0], amount=amount, moment=when, memo="A reservation")

    def hand_over(self, _: int) -> None:
        own(self.other, self.cluster, "vision", since=f"{self.world.handed_over:%Y-%m-%d %H:%M}")

    def book(self, day: int) -> None:
        booking.book_due(moment=SINCE + timedelta(days=day))

    def tend(self, day: int) -> None:
        grants.tend(moment=SINCE + timedelta(days=day))

    def stories(self) -> list[Story]:
        """What happened to each of the two tenants."""
        smallest, price = PRICES[self.world.currency]
        over = self.world.handed_over or datetime.max.replace(tzinfo=UTC)
        jobs = [
            Job(begun, begun + timedelta(seconds=seconds), Fraction(price) * gpus / 3600)
            for begun, seconds, gpus, _ in self.world.jobs
        ]
        fields: dict[str, Any] = {
            "zone": self.world.zone, "opened": SINCE, "now": NOW, "smallest": smallest, "rules": self.world.rules,
        }  # fmt: skip
        before = [replace(job, end=min(job.end, over)) for job in jobs if job.start < over]
        after = [replace(job, start=max(job.start, over)) for job in jobs if job.end > over]
        return [
            Story(jobs=before, gifts=self.world.gifts, spent=self.world.spent, **fields),
            Story(jobs=after, **fields),
        ]


SPENT_LATE = World(
    "UTC", "USD", rules=(oracle_wallets.Rule("daily", "day", 3_00, cap=12_00, lasts=1), RULES[3]), jobs=(), gifts=(),
    spent=((at("2026-03-02 12:00"), 30_00),), handed_over=None, order=(("tend", 18), ("spend", 0)),
)  # fmt: skip
"""A wallet above its cap was given nothing by the day; what was spent then is recorded late."""


@pytest.mark.swept
@settings(
    max_examples=examples(12, 150, short=3), database=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@example(SPENT_LATE)
@given(worlds())
def test_any_order_and_rhythm_leaves_what_plain_fractions_say(world: World) -> None:
    with undone():
        play = Play(world)
        for step, value in world.order:
            getattr(play, step)(value)
        booking.book_due(moment=NOW)
        for wallet in play.wallets:
            grants.accrue(wallet=wallet, moment=NOW)
        for wallet, story in zip(play.wallets, play.stories(), strict=True):
            agree(wallet, story)
        holds()


def agree(wallet: Wallet, story: Story) -> None:
    expected = oracle_wallets.wallet(story)
    wallet.refresh_from_db()
    grants = WalletGrant.objects.filter(wallet=wallet)
    assert {row.key: (row.left, row.expired) for row in grants if row.left or row.expired} == {
        pot.name: (pot.left, pot.gone) for pot in expected.pots if pot.left or pot.gone
    }
    debts = WalletEntry.objects.filter(wallet=wallet, side="balance", grant=None, day__isnull=False)
    sums = debts.order_by("day").values_list("day").annotate(sum=Sum("amount"))
    assert {day: -int(amount) for day, amount in sums if amount} == {
        day: debt for day, debt in expected.debts.items() if debt
    }
    assert wallet.balance == expected.balance


@contextmanager
def undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
