"""No block of a budget outlives what demands it: terms end, accounts move, workers come too late."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.admission.blocked_accounts import list_blocked_accounts
from billing.models import (
    GrantKind,
    Quota,
    QuotaBlock,
    QuotaChange,
    QuotaCredits,
    QuotaEvery,
    WalletGrant,
    WalletScope,
)
from billing.quotas import blocks, quotas, review
from billing.quotas.quotas import Setter
from billing.wallets import clawback, grants, wallet_terms
from clusters import enforcement_plan, job_control
from clusters.enforcement_plan import SchedulerPort
from clusters.models import AccountBlock, BlockReason, Cluster
from tests.builders import a_cluster, a_tenant, at, ingest, own
from tests.fakes.scheduler_port import a_port, a_world
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_credit_notes import a_lab, job
from tests.scenarios.test_quotas_block import BLOCKS, Lab
from tests.scenarios.test_quotas_count import figure
from tests.stories import closed


def quota(name: str) -> Quota:
    return quotas.list_quotas().get(name=name)


pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with StandIn(44, world=a_world()) as slurm:
        yield Lab(slurm)


def test_quota_037_credit_and_top_ups_lift_it_with_the_next_pass_and_a_refund_blocks_again(lab: Lab) -> None:
    a_quota(lab.tenant, "paid", credits=QuotaCredits.PAID, **BLOCKS)
    net = a_quota(lab.tenant, "net", credits=QuotaCredits.NET, amount=Decimal(5000))
    scheme = wallet_terms.set_scheme(
        tenant=lab.tenant, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = scheme.wallets.get()

    def gives(dollars: int, kind: GrantKind) -> WalletGrant:
        return grants.grant(
            wallet=wallet, amount=dollars * 100, key=kind, who="ann", kind=kind, moment=lab.now
        )

    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert lab.gpus == 0
    assert not QuotaChange.objects.exists()
    top_up = gives(20, GrantKind.TOP_UP)
    lab.goes_by(20)
    assert (lab.gpus, lab.states) == (8, ["lifted"])
    assert [figure(one, f"{lab.now:%Y-%m-%d %H:%M}").used for one in (quota("paid"), net)] == [980, 1000]
    clawback.take_back(grant=top_up, amount=1500, why="refunded", moment=lab.now)
    spend(lab.cluster, "5.00", day="2026-03-03")
    lab.goes_by(20)
    assert figure(quota("paid"), f"{lab.now:%Y-%m-%d %H:%M}").used == 1000
    assert lab.gpus == 0
    gives(50, GrantKind.GIFT)
    lab.goes_by(20)
    assert lab.gpus == 8
    assert [figure(one, f"{lab.now:%Y-%m-%d %H:%M}").used for one in (quota("paid"), net)] == [950, 955]


def test_a_term_that_is_over_blocks_nobody(lab: Lab) -> None:
    term: dict[str, Any] = {
        "every": QuotaEvery.TERM,
        "first_day": date(2026, 3, 1),
        "end_day": date(2026, 3, 11),
    }
    a_quota(lab.tenant, **term, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert lab.gpus == 0
    lab.now = at("2026-03-11 00:00")
    lab.goes_by()
    assert (lab.gpus, lab.states) == (8, ["lifted"])


def test_a_worker_that_blocks_too_late_is_undone_by_the_next_pass(lab: Lab) -> None:
    """It waited for the cluster while the amount was raised and another worker dropped what was never sent."""
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.now += timedelta(seconds=60)
    review.review_quotas(moment=lab.now)
    others: list[str] = []

    def opens_slowly(cluster: Cluster) -> SchedulerPort:
        if not others:
            lab.raise_to("1500")
            lab.now += timedelta(seconds=30)
            review.review_quotas(moment=lab.now)
            others.append(str(blocks.enforce_blocks(moment=lab.now, opens=lab.opens)))
        return a_port(lab.slurm)

    blocks.enforce_blocks(moment=lab.now, opens=opens_slowly)
    lab.goes_by()
    assert lab.gpus == 8
    assert not AccountBlock.objects.filter(ended_at=None).exists()
    assert not QuotaBlock.objects.filter(ended_at=None).exists()


def test_a_reason_that_a_dead_worker_left_behind_is_lifted(lab: Lab) -> None:
    quota = a_quota(lab.tenant, **BLOCKS)
    with lab.opens(lab.cluster) as port:
        plan = enforcement_plan.plan_block(port=port, account="vision", source=f"quota:{quota.pk}")
        assert job_control.carry_out(port=port, plan=plan, who="quota", why="nobody knows").good
    assert lab.gpus == 0
    lab.goes_by()
    assert (lab.gpus, BlockReason.objects.filter(ended_at=None).count()) == (8, 0)


def test_an_account_that_moves_is_free_with_the_next_pass_and_blocked_with_its_new_owner(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    other = a_tenant("other")
    own(other, lab.cluster, "vision", since=f"{lab.now:%Y-%m-%d %H:%M}")
    lab.goes_by()
    assert lab.gpus == 8
    back = lab.now.replace(second=0)
    own(lab.tenant, lab.cluster, "vision", since=f"{back:%Y-%m-%d %H:%M}")
    lab.goes_by()
    assert lab.gpus == 0


def test_quota_003_a_note_of_a_close_is_not_taken_off_a_net_quota_again() -> None:
    lab = a_lab()
    ingest(a_cluster(), job("vision-lab", 4))  # it took four hours and not ten
    closed("2026-04", lab)
    gross = a_quota(lab, "gross", every=QuotaEvery.YEAR)
    net = a_quota(lab, "net", every=QuotaEvery.YEAR, credits=QuotaCredits.NET)
    assert figure(net, "2026-08-01").used == figure(gross, "2026-08-01").used == 8


def test_a_budget_that_was_ended_blocks_no_submission_while_its_block_is_being_lifted(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    (listed,) = list_blocked_accounts(lab.cluster, moment=lab.now)
    assert "Budget monthly (everything, each month): $1,000.00 of $1,000.00 used, $0.00 left." in listed.text
    quotas.end_quota(tenant=lab.tenant, name="monthly", by=Setter.OPERATOR, moment=lab.now)
    assert list(list_blocked_accounts(lab.cluster, moment=lab.now)) == []
