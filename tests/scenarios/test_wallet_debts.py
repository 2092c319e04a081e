"""A bucket of tokens, whole: who is below zero is stopped, and only while others wait for the GPUs; and the way in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import IntegrityError, connection, transaction

from billing.models import (
    DebtTerms,
    GrantEvery,
    Quota,
    QuotaAction,
    QuotaBlock,
    Subscription,
    Wallet,
    WalletScope,
)
from billing.quotas import quotas
from billing.quotas.debts import follow_debts
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaError, QuotaTerms
from billing.rating.pulls import PullOutcome
from billing.wallets import booking, grants, wallet_terms
from billing.wallets.entries import WalletError
from billing.wallets.wallet_terms import Debt, Rule
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import Act, ActKind
from portal.core.audit.models import AuditEntry
from tests.builders import a_job, a_plan, at, ingest
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn
from tests.scenarios.test_quotas_end_jobs import EndingLab, endings, subjects

pytestmark = pytest.mark.django_db(transaction=True)

MILLION = 1_000_000
PRICED = date(2026, 1, 1)
ENDS = Debt(action=QuotaAction.END_JOBS, demand_above=75, grace_minutes=120, watch=False)


class BucketLab(EndingLab):
    """Users have buckets of tokens, 1 a GPU-hour, and the cluster 6 GPUs. At 12:00 of the 5th Ben's is overdrawn."""

    def __init__(self, slurm: StandIn, debt: Debt | None = ENDS) -> None:
        super().__init__(slurm)
        tokens = a_plan("tokens", "TOK", prices=[("gpu-hour", {}, "1", PRICED)], settles="wallet")
        Subscription.objects.filter(tenant=self.tenant).update(plan=tokens)
        self.scheme = wallet_terms.set_scheme(
            tenant=self.tenant,
            unit="TOK",
            scope=WalletScope.USER,
            overdraft=10 * MILLION,
            since=at("2026-03-01"),
        )
        wallet_terms.set_rule(
            scheme=self.scheme,
            rule=Rule(name="begin", amount=4 * MILLION, every=GrantEvery.ONCE, begins_at=at("2026-03-01")),
        )
        wallet_terms.set_debt(scheme=self.scheme, debt=debt)
        self.up(6)

    def up(self, gpus: int, drained: int = 0) -> None:
        """So many GPUs are up now, and so many on a node that is being drained."""
        counts = {"n1": (gpus, NodeState.UP), "n2": (drained, NodeState.DRAINED)}
        nodes = [
            NodeSeen(name=name, gpu_model="a100", gpus=count, state=state)
            for name, (count, state) in counts.items()
            if count
        ]
        capacity.observe(self.cluster, nodes, self.now)

    def overdraws(self) -> None:
        """Four GPUs of Ben's since 10:00, and one of Eve's, who has enough."""
        self.runs(71, "2026-03-05 10:00", gpus=4)
        self.runs(72, "2026-03-05 11:30", gpus=1, user="eve")
        self.books()
        self.goes_by(0)

    def books(self) -> None:
        booking.book_due(moment=self.now)
        grants.tend(moment=self.now)


@pytest.fixture
def lab(settings: Any) -> Iterator[BucketLab]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(44, world=a_world()) as slurm:
        yield BucketLab(slurm)


def balance(user: str = "ben") -> int:
    return Wallet.objects.get(user=user).balance


def debts() -> list[tuple[str, bool]]:
    return [(row.user, row.ended_at is None) for row in Quota.objects.order_by("pk")]


def test_a_debt_holds_and_after_two_warnings_ends_what_the_user_runs(lab: BucketLab) -> None:
    """The documented story: 4 of 4 tokens are used at 11:00, 8 at 12:00; five of six GPUs are held, above 75 %."""
    lab.slurm.world.add(Job(73, user="ben", submitted=int(at("2026-03-05 11:50").timestamp())))
    lab.overdraws()
    assert (balance(), debts()) == (-4 * MILLION, [("ben", True)])
    (block,) = QuotaBlock.objects.all()
    assert (block.holds, block.user, block.submits) == (True, "ben", False)
    assert block.why == "wallet of user ben of vision is below zero"
    assert lab.gpus == 8  # the account's limit, and so Eve, is untouched
    assert lab.slurm.world.jobs[73].reason.startswith("JobHeld")
    assert subjects("running jobs end")[0].endswith("running jobs end at 2026-03-05 14:00 UTC")
    body = " ".join(str(mail.outbox[-1].body).split())
    assert "The wallet of user ben is below zero, and the cluster is busy" in body
    lab.is_due()
    done = lab.ends()
    assert (done.ended, done.troubles) == (1, [])
    assert [lab.state_of(number) for number in (71, 72)] == ["CANCELLED", "RUNNING"]
    assert endings() == [("done", ["71"])]
    ledger = AuditEntry.objects.filter(
        table__in=["billing_quota", "billing_quotablock", "billing_quotaending"]
    )
    assert {row.table for row in ledger} == {"billing_quota", "billing_quotablock", "billing_quotaending"}
    assert Act.objects.filter(kind=ActKind.CANCEL).count() == 1


def test_a_debt_stops_nobody_while_gpus_are_free(lab: BucketLab) -> None:
    """Five of 16 GPUs are held; then of 6, then of 16 again: what was announced ends nothing, and says so."""
    lab.up(16)
    lab.overdraws()
    assert (debts(), lab.states, endings()) == ([("ben", True)], [], [])
    lab.now += timedelta(minutes=1)
    lab.up(6)
    lab.goes_by(30)
    assert (lab.states, [state for state, _ in endings()]) == (["blocked"], ["announced"])
    lab.is_due()
    lab.up(7)  # 71 %: below the mark by less than the margin
    lab.goes_by(0)
    assert lab.states == ["blocked"]
    lab.now += timedelta(minutes=1)
    lab.up(16)
    assert lab.ends().ended == 0  # seen by the worker before any pass
    lab.goes_by()
    assert (lab.states, endings(), lab.state_of(71)) == (["lifted"], [("stopped", [])], "RUNNING")


def test_a_debt_stops_nobody_where_only_nodes_that_are_drained_are_full(lab: BucketLab) -> None:
    """Five GPUs are held, up to four of them on the node that is drained: of the six that are up, five may be free."""
    lab.up(6, drained=4)
    lab.overdraws()
    assert (debts(), lab.states, endings()) == ([("ben", True)], [], [])
    lab.now += timedelta(minutes=1)
    lab.up(1, drained=4)
    lab.goes_by(30)
    assert lab.states == ["blocked"]
    lab.is_due()
    lab.up(6, drained=4)
    assert (lab.ends().ended, lab.state_of(71)) == (0, "RUNNING")


def test_two_who_see_one_debt_at_once_write_one_budget(lab: BucketLab) -> None:
    """A pass and an import: neither fails."""
    lab.runs(71, "2026-03-05 10:00", gpus=4)
    lab.books()
    barrier, failed = threading.Barrier(4), list[IntegrityError]()

    def follow() -> None:
        try:
            barrier.wait()
            with transaction.atomic():
                follow_debts([lab.tenant.pk], moment=lab.now)
                time.sleep(0.2)
        except IntegrityError as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failed, debts()) == ([], [("ben", True)])


def test_no_more_is_ended_than_it_takes(lab: BucketLab) -> None:
    """Two jobs of Ben's hold four and one of six GPUs, Eve's one: without the first, demand is low."""
    lab.runs(70, "2026-03-05 10:30", gpus=1)
    lab.overdraws()
    lab.is_due()
    assert lab.ends().ended == 1
    assert [lab.state_of(number) for number in (71, 70, 72)] == ["CANCELLED", "RUNNING", "RUNNING"]


def test_a_debt_that_is_paid_in_the_grace_ends_nothing(lab: BucketLab) -> None:
    lab.overdraws()
    lab.is_due()
    grants.grant(
        wallet=Wallet.objects.get(user="ben"), amount=20 * MILLION, key="G1", who="op", moment=lab.now
    )
    assert (lab.ends().ended, lab.state_of(71)) == (0, "RUNNING")
    lab.goes_by()
    assert (debts(), lab.states, endings()) == ([("ben", False)], ["lifted"], [("stopped", [])])


def test_quota_064_a_debt_that_the_last_pull_takes_back_ends_nothing(lab: BucketLab) -> None:
    """His job had ended before it made a debt: the pull before the end says so, and that is booked first."""
    lab.overdraws()
    job = lab.slurm.world.jobs[71]
    job.state, job.ended = "COMPLETED", int(at("2026-03-05 10:30").timestamp())
    lab.runs(74, "2026-03-05 11:59", gpus=1)
    lab.is_due()
    assert (lab.ends().ended, lab.state_of(74)) == (0, "RUNNING")
    lab.outcome = PullOutcome.FAILED
    assert lab.ends().ended == 0


def test_debts_are_watched_unless_it_is_written_and_whoever_gets_free_needs_so_much(lab: BucketLab) -> None:
    wallet_terms.set_debt(scheme=lab.scheme, debt=Debt(action=QuotaAction.END_JOBS, free_at=30 * MILLION))
    lab.overdraws()
    lab.is_due()
    assert (lab.ends().ended, lab.states, endings()) == (0, ["watched"], [("watched", [])])
    row = Quota.objects.get()
    assert (row.watch, row.ends_older, row.grace_minutes) == (True, True, 120)
    wallet = Wallet.objects.get(user="ben")
    for amount, open_debts in ((30, True), (4, False)):  # 34 in all, of -4: 30 are there again
        grants.grant(wallet=wallet, amount=amount * MILLION, key=f"G{amount}", who="op", moment=lab.now)
        lab.goes_by(30)
        assert debts() == [("ben", open_debts)]
    ingest(lab.cluster, a_job(user="", gpus=9, started="2026-03-04 10:00", ended="2026-03-04 11:00"))
    lab.books()
    lab.goes_by()
    assert (balance(""), len(debts())) == (-5 * MILLION, 1)  # whose jobs are nobody's, nobody ends
    wallet_terms.set_debt(scheme=lab.scheme, debt=None)
    assert not DebtTerms.objects.exists()


def test_what_a_debt_cannot_be_is_a_sentence_and_nobody_sets_its_budget_by_hand(lab: BucketLab) -> None:
    for debt in (
        Debt(action=QuotaAction.NO_GPU_JOBS),
        Debt(action=QuotaAction.HOLD_JOBS, grace_minutes=60),
        Debt(action=QuotaAction.END_JOBS, grace_minutes=5),
        Debt(action=QuotaAction.HOLD_JOBS, demand_above=100),
        Debt(action=QuotaAction.HOLD_JOBS, free_at=-1),
    ):
        with pytest.raises(WalletError):
            wallet_terms.set_debt(scheme=lab.scheme, debt=debt)
    lab.overdraws()
    row = Quota.objects.get()
    with pytest.raises(QuotaError, match="comes with the debt of a wallet"):
        quotas.end_quota(tenant=lab.tenant, name=row.name, by=Setter.OPERATOR, moment=lab.now)
    with pytest.raises(QuotaError, match="Names that begin with debt-"):
        quotas.set_quota(
            tenant=lab.tenant, name="debt-x", terms=QuotaTerms.of(row), by=Setter.OPERATOR, moment=lab.now
        )
