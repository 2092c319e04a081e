"""Whatever is used, raised, paid, killed or away: in the end all is blocked and told that should be, and nothing else.

The oracle knows no counters, passes, rows or reasons: it computes from all that happened who is to be blocked now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from billing.models import (
    GrantKind,
    Quota,
    QuotaAction,
    QuotaBlock,
    QuotaCredits,
    QuotaCrossing,
    WalletScope,
)
from billing.quotas import blocks, figures, quotas, review
from billing.quotas.block_proof import prove_blocks
from billing.quotas.terms import QuotaError
from billing.wallets import grants, wallet_terms
from clusters import enforcement_plan, job_control
from clusters.models import AccountBlock, Act, BlockReason, Cluster
from portal.core.events.models import Event
from tests.builders import own
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_quotas_block import Lab
from tests.tiers import examples

pytestmark = pytest.mark.django_db

ACCOUNTS = ("vision", "speech")
THRESHOLDS = {"50%": 50, "80%": 80, "100%": 100}
AMOUNTS, DOLLARS = (
    st.integers(2, 20),
    st.integers(1, 12),
)  # of 100.00 and of 50.00: never within 1 % of a threshold
ACTIONS = st.one_of(
    st.tuples(st.just("use"), st.sampled_from(ACCOUNTS), DOLLARS),
    st.tuples(st.just("correct"), st.integers(0, 5), DOLLARS),
    st.tuples(st.just("allow"), st.sampled_from(["all", "of-speech", "prepaid"]), AMOUNTS),
    st.tuples(st.just("pay"), DOLLARS),
    st.tuples(st.just("by_hand"), st.sampled_from(ACCOUNTS)),
    st.tuples(st.just("outage"), st.booleans()),
    st.tuples(st.just("dies"), st.integers(1, 120)),
    st.tuples(st.just("goes_by"), st.integers(20, 600)),
    st.tuples(st.just("next_month")),
    st.tuples(st.just("settles")),
)


@dataclass
class Oracle:
    """All that happened, and what follows from it; nothing is remembered between two questions but what was told."""

    use: list[tuple[str, str, int]] = field(default_factory=list)  # account, month, dollars
    paid: list[tuple[str, int]] = field(default_factory=list)
    amounts: dict[str, int] = field(default_factory=lambda: {"all": 1000, "of-speech": 400, "prepaid": 700})
    by_hand: set[str] = field(default_factory=set)
    reached: set[tuple[str, str, str]] = field(default_factory=set)
    crossings: Counter[tuple[str, str]] = field(default_factory=Counter)

    def used(self, quota: str, month: str) -> int:
        accounts = ("speech",) if quota == "of-speech" else ACCOUNTS
        whole = sum(dollars for account, at, dollars in self.use if at == month and account in accounts)
        return whole - (sum(dollars for at, dollars in self.paid if at == month) if quota == "prepaid" else 0)

    def demanding(self, account: str, month: str) -> set[str]:
        """The quotas that block the account."""
        return {
            quota
            for quota, amount in self.amounts.items()
            if self.used(quota, month) >= amount and (quota != "of-speech" or account == "speech")
        }

    def list_reached(self, month: str) -> set[tuple[str, str]]:
        """Thresholds that are reached, by quota."""
        return {
            (quota, threshold)
            for quota, amount in self.amounts.items()
            for threshold, percent in THRESHOLDS.items()
            if 100 * self.used(quota, month) >= percent * amount
        }

    def changes(self, month: str) -> None:
        """After each thing that happened: how often each threshold can have been told at most."""
        now = {(quota, threshold, month) for quota, threshold in self.list_reached(month)}
        self.crossings.update((quota, threshold) for quota, threshold, _ in now - self.reached)
        self.reached = now


class Killed(BaseException):
    """What a worker that is killed does not catch."""


@contextmanager
def dying(statements: int) -> Iterator[None]:
    """Whoever is within dies before that many statements; what was committed stays."""
    left = statements

    def execute(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise Killed
        return execute(sql, params, many, context)

    with connection.execute_wrapper(execute):
        try:
            yield
        except Killed:
            pass


class World(Lab):
    """Vision has two accounts, three budgets and a wallet; what is done to it is done to the oracle, too."""

    def __init__(self, slurm: StandIn) -> None:
        super().__init__(slurm)
        self.oracle = Oracle()
        own(self.tenant, self.cluster, "speech")
        scheme = wallet_terms.set_scheme(
            tenant=self.tenant, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=self.now
        )
        self.wallet = scheme.wallets.get()
        a_quota(self.tenant, "all", action=QuotaAction.NO_GPU_JOBS)
        a_quota(
            self.tenant, "of-speech", account="speech", amount=Decimal(400), action=QuotaAction.NO_SUBMISSIONS
        )
        a_quota(
            self.tenant,
            "prepaid",
            amount=Decimal(700),
            credits=QuotaCredits.PAID,
            action=QuotaAction.NO_GPU_JOBS,
        )

    @property
    def month(self) -> str:
        return f"{self.now:%Y-%m}"

    def do(self, name: str, *values: Any) -> None:
        getattr(self, f"do_{name}")(*values)
        self.oracle.changes(self.month)

    def do_use(self, account: str, fifties: int) -> None:
        self._spend(len(self.oracle.use), account, 50 * fifties)
        self.oracle.use.append((account, self.month, 50 * fifties))

    def do_correct(self, number: int, fifties: int) -> None:
        if number < len(self.oracle.use) and self.oracle.use[number][1] == self.month:
            account = self.oracle.use[number][0]
            self._spend(number, account, 50 * fifties)
            self.oracle.use[number] = (account, self.month, 50 * fifties)

    def _spend(self, number: int, account: str, dollars: int) -> None:
        spend(self.cluster, str(dollars), day=f"{self.month}-01", job_id=str(900 + number), account=account)

    def do_allow(self, name: str, hundreds: int) -> None:
        try:
            self.raise_to(str(100 * hundreds), name)
        except QuotaError:  # a part of more than the whole
            return
        self.oracle.amounts[name] = 100 * hundreds

    def do_pay(self, fifties: int) -> None:
        key = f"top-up {len(self.oracle.paid)}"
        grants.grant(
            wallet=self.wallet,
            amount=5000 * fifties,
            key=key,
            who="ann",
            kind=GrantKind.TOP_UP,
            moment=self.now,
        )
        self.oracle.paid.append((self.month, 50 * fifties))

    def do_by_hand(self, account: str) -> None:
        if self.is_away:
            return
        with self.opens(self.cluster) as port:
            job_control.tidy(port=port)
            is_blocked = account in self.oracle.by_hand
            make = enforcement_plan.plan_unblock if is_blocked else enforcement_plan.plan_block
            assert job_control.carry_out(port=port, plan=make(port=port, account=account), who="op").good
        self.oracle.by_hand ^= {account}

    def do_outage(self, is_away: bool) -> None:
        self.is_away = is_away

    def do_dies(self, statements: int) -> None:
        with dying(statements):
            self.do_goes_by(20)

    def do_goes_by(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        Cluster.objects.update(complete_through=self.now)
        review.review_quotas(moment=self.now)
        blocks.enforce_blocks(moment=self.now, opens=self.opens)

    def do_next_month(self) -> None:
        later = self.now.replace(day=1) + timedelta(days=32)
        self.now: datetime = later.replace(day=5, hour=12)
        self.do_goes_by(20)

    def do_settles(self) -> None:
        """The scheduler answers again, and what is put off is due: all is as the oracle has it."""
        self.is_away = False
        for seconds in (7 * 3600, 60):
            self.do_goes_by(seconds)
        self._blocks_what_it_should()
        self._tells_what_it_should()

    def _blocks_what_it_should(self) -> None:
        demanded = {account: self.oracle.demanding(account, self.month) for account in ACCOUNTS}
        rows = QuotaBlock.objects.filter(ended_at=None).values_list("account__name", "quota__name", "state")
        assert set(rows) == {(a, quota, "blocked") for a, listed in demanded.items() for quota in listed}
        for account, before in (("vision", 8), ("speech", None)):
            limits = self.slurm.world.limits(account)
            is_blocked = bool(demanded[account]) or account in self.oracle.by_hand
            assert limits.tres.get("total", {}).get("gres/gpu") == (0 if is_blocked else before)
            refuses = "of-speech" in demanded[account]
            assert limits.jobs.get("per.submitted") == (0 if refuses else None)
            reasons = BlockReason.objects.filter(block__account=account, ended_at=None)
            assert reasons.count() == len(demanded[account]) + (account in self.oracle.by_hand)
            assert AccountBlock.objects.filter(account=account, ended_at=None).exists() == is_blocked
        assert not Act.objects.filter(outcome__in=("intended", "unknown")).exists()
        assert prove_blocks(moment=self.now).broken == []

    def _tells_what_it_should(self) -> None:
        rows = list(quotas.list_quotas(self.tenant))
        for pk, one in figures.load_figures(rows, moment=self.now).items():
            name = Quota.objects.get(pk=pk).name
            assert one.used == self.oracle.used(name, self.month)
        first = self.now.replace(day=1, hour=0, minute=0, second=0)
        crossings = QuotaCrossing.objects.filter(cleared_at=None, start=first)
        reached = set(crossings.values_list("quota__name", "threshold"))
        assert reached == self.oracle.list_reached(self.month)
        names = dict(Quota.objects.values_list("pk", "name"))
        events = Counter(
            (names[event.key], event.state.removeprefix("used "))
            for event in Event.objects.filter(type="quota.threshold", state__startswith="used ")
        )
        assert all(events[key] <= self.oracle.crossings[key] for key in events)


EVERYTHING: list[Any] = [
    *[
        ("use", "vision", 12),
        ("use", "speech", 8),
        ("settles",),
        ("pay", 8),
        ("correct", 0, 11),
        ("settles",),
    ],
    *[("correct", 0, 12), ("dies", 60), ("by_hand", "vision"), ("outage", True), ("goes_by", 60)],
    *[("allow", "all", 15), ("goes_by", 60), ("use", "speech", 1), ("dies", 25), ("settles",)],
    *[("next_month",), ("by_hand", "vision"), ("use", "vision", 9), ("pay", 2), ("allow", "prepaid", 3)],
]


@example(EVERYTHING)
@given(st.lists(ACTIONS, min_size=4, max_size=14))
@settings(max_examples=examples(1, 300), phases=(Phase.explicit, Phase.generate))
def test_quota_060_in_whatever_order_it_blocks_and_tells_what_the_oracle_says(story: list[Any]) -> None:
    whole = transaction.atomic()
    whole._from_testcase = True  # type: ignore[attr-defined]  # what is durable within is so to the story
    with StandIn(44, world=a_world()) as slurm, whole:
        world = World(slurm)
        for name, *values in story:
            world.do(name, *values)
        world.do("settles")
        transaction.set_rollback(True)
