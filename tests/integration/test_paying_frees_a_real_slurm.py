"""A tenant with $1.00 left is told, blocked, pays by card and runs again on a real Slurm, without anybody's hand."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.test import override_settings

from billing import tasks
from billing.models import (
    QuotaAction,
    QuotaBlock,
    QuotaCredits,
    QuotaEvery,
    QuotaMeasure,
    Wallet,
    WalletScope,
)
from billing.quotas import figures, quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from billing.wallets import wallet_terms
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.dev.stripe_sandbox.sandbox import Sandbox
from tests.builders import LONG_AGO, a_person, a_plan, a_tenant
from tests.collecting import Scenario
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_pulls import connected, pull
from tests.integration.test_slurm_acts import group_limits, job_state
from tests.web.house import page, signed_in
from tests.web.test_overview import words

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.one_attempt]

GPU = ("-p", "a100", "--gres=gpu:a100:1")
A_SECOND = "3600.00"
"""What an hour of a GPU costs, so that a second costs a dollar."""


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def stripe() -> Iterator[Sandbox]:
    with Sandbox(now=now(), secret="whsec_of_the_tests") as sandbox:
        with override_settings(
            STRIPE_SECRET_KEY=sandbox.key,
            STRIPE_API_BASE=sandbox.url,
            STRIPE_WEBHOOK_SECRETS=["whsec_of_the_tests"],
            CLUSTERTAB_SENDS_MAIL=True,
        ):
            yield sandbox
        assert sandbox.violations == []


def goes_by() -> None:
    """What the scheduler of tasks begins every 20 and 60 seconds."""
    tasks.review_quotas()
    tasks.enforce_blocks()
    tasks.send_notices()


def leave(tenant: Tenant, dollars: int) -> None:
    """Let the tenant have a budget of which so much is left."""
    terms: dict[str, Any] = {
        "measure": QuotaMeasure.MONEY,
        "every": QuotaEvery.YEAR,
        "action": QuotaAction.NO_GPU_JOBS,
        "credits": QuotaCredits.PAID,
    }

    def put(amount: Decimal) -> None:
        terms["amount"] = amount
        quotas.set_quota(
            tenant=tenant, name="yearly", terms=QuotaTerms(**terms), by=Setter.OPERATOR, moment=now()
        )

    put(Decimal(10**6))
    (row,) = quotas.list_quotas(tenant)
    put(Decimal(int(figures.load_figures([row], moment=now())[row.pk].used) + dollars))


def reads_as(cluster: Cluster, tenant: Tenant, state: str) -> bool:
    """Whether the budget's block is so after a pull and what follows it by itself."""
    time.sleep(1)  # slurmdbd hears of a job some seconds late
    pull(cluster)
    goes_by()
    return list(QuotaBlock.objects.filter(tenant=tenant).values_list("state", flat=True)) == [state]


@pytest.mark.parametrize("every_slurm", ["sid"], indirect=True)
def test_quota_032_037_who_has_a_dollar_left_is_told_and_blocked_and_runs_again_once_paid_by_card(
    every_slurm: Lab, stripe: Sandbox
) -> None:
    cluster = connected(every_slurm)
    plan = a_plan(prices=[("gpu-hour", {}, A_SECOND, LONG_AGO)])
    globex = a_tenant("globex", plan=plan, accounts=[(cluster, "globex")])
    ann = a_person("ann@globex.example", globex)
    wallet_terms.set_scheme(tenant=globex, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=now())
    wallet = Wallet.objects.get()
    Scenario(stripe, globex, now()).save_card()
    before = group_limits(every_slurm, "globex")
    jobs: list[str] = []
    try:
        pull(cluster)
        leave(globex, 1)
        goes_by()
        assert "$1.00" in words(page(ann, "/t/globex/budgets/"))
        jobs.append(every_slurm.submits("cyd", "globex", "sleep 300", *GPU))
        every_slurm.is_running(jobs[0])
        until(lambda: reads_as(cluster, globex, "blocked"))

        assert group_limits(every_slurm, "globex").startswith("gres/gpu=0|")
        assert job_state(every_slurm, jobs[0]).startswith("RUNNING")  # what runs runs on
        (notice,) = mail.outbox
        assert notice.to == ["ann@globex.example"]
        assert "No new GPU job of its accounts starts" in str(notice.body).replace("\n", " ")
        assert "Blocked: globex" in words(page(ann, "/t/globex/budgets/"))
        jobs.append(every_slurm.submits("cyd", "globex", "sleep 300", *GPU))
        until(lambda: "Assoc" in job_state(every_slurm, jobs[1]))
        every_slurm.slurm("scancel", jobs[0])
        every_slurm.has_ended(jobs[0])
        assert reads_as(cluster, globex, "blocked")

        answer = signed_in(ann).post(
            f"/t/globex/wallets/{wallet.pk}/top-up/",
            {"amount": "5000.00", "key": str(uuid.uuid4()), "by": "card"},
        )
        assert answer.status_code == 302, answer.content
        goes_by()
        wallet.refresh_from_db()
        assert (wallet.balance, QuotaBlock.objects.get().state) == (5000_00, "lifted")
        assert group_limits(every_slurm, "globex") == before
        until(lambda: job_state(every_slurm, jobs[1]).startswith("RUNNING"))
        assert "Blocked: globex" not in words(page(ann, "/t/globex/budgets/"))
    finally:
        for job in jobs:
            every_slurm.slurm("scancel", job)
            every_slurm.knows(job, "CANCELLED")
