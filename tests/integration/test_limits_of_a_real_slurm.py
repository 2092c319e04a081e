"""What an account holds at once on a real Slurm: what is beyond waits, and what a block hid comes when it ends."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.limits import enforcement, limits
from billing.limits.limits import LimitTerms
from billing.models import LimitedAccount, QuotaAction, QuotaEvery, QuotaMeasure
from billing.quotas import blocks, quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from portal.core.tenants.models import Tenant
from tests.builders import a_plan, a_tenant
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_pulls import connected, pull
from tests.integration.test_quota_of_a_real_slurm import port
from tests.integration.test_slurm_acts import group_limits, job_state

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.one_attempt]


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def limit(tenant: Tenant, **said: object) -> None:
    terms = LimitTerms(**said)  # type: ignore[arg-type]
    limits.set_limit(tenant=tenant, name="once", terms=terms, moment=now())
    enforces()


def enforces() -> None:
    done = enforcement.enforce_limits(moment=now() + timedelta(seconds=1), opens=port)
    assert done.troubles == []


def allow(tenant: Tenant, hours: int) -> None:
    """A budget of so many GPU-hours, and what workers carry out for it."""
    terms = QuotaTerms(
        measure=QuotaMeasure.GPU_HOURS,
        amount=Decimal(hours),
        every=QuotaEvery.YEAR,
        action=QuotaAction.NO_GPU_JOBS,
    )
    quotas.set_quota(tenant=tenant, name="yearly", terms=terms, by=Setter.OPERATOR, moment=now())
    review.review_quotas(moment=now())
    assert blocks.enforce_blocks(moment=now(), opens=port).troubles == []


def test_a_limit_is_held_and_one_that_changes_beneath_a_block_comes_with_its_end(every_slurm: Lab) -> None:
    cluster = connected(every_slurm)
    globex = a_tenant("globex", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "globex")])
    jobs: list[str] = []
    try:
        limits.set_limit(tenant=globex, name="once", terms=LimitTerms(gpus=1), moment=now())
        done = enforcement.enforce_limits(moment=now(), opens=port)
        if "cannot" in " ".join(done.troubles) or "23.11" in " ".join(done.troubles):
            assert LimitedAccount.objects.get().error  # it says so, and is tried again
            pytest.skip(f"Slurm {every_slurm.version} cannot have its limits set over REST.")
        assert done.troubles == []
        assert group_limits(every_slurm, "globex") == "gres/gpu=1|gres/gpu=6000|"

        gpu = ("-p", "a100", "--gres=gpu:a100:1")
        jobs += [every_slurm.submits("cyd", "globex", "sleep 300", *gpu) for _ in range(2)]
        runs, waits = jobs
        every_slurm.is_running(runs)
        until(lambda: "AssocGrpGRES" in job_state(every_slurm, waits))  # the second is beyond the limit
        time.sleep(2)
        pull(cluster)

        allow(globex, 0)
        assert group_limits(every_slurm, "globex").startswith("gres/gpu=0|")
        limit(globex, gpus=2, jobs=5)
        assert group_limits(every_slurm, "globex").startswith("gres/gpu=0|")  # it stays blocked
        assert job_state(every_slurm, waits).startswith("PENDING")
        allow(globex, 10**6)
        assert group_limits(every_slurm, "globex").startswith(
            "gres/gpu=2|"
        )  # the present one, not that of before
        until(lambda: job_state(every_slurm, waits).startswith("RUNNING"))

        limit(globex, gpus=3, gpu_model="h100")
        assert group_limits(every_slurm, "globex").startswith("gres/gpu:h100=3|")
        limits.end_limit(tenant=globex, name="once", moment=now())
        enforces()
        assert group_limits(every_slurm, "globex") == "|gres/gpu=6000|"
        assert LimitedAccount.objects.get().ended_at is not None
    finally:
        for job in jobs:
            every_slurm.slurm("scancel", job)
            every_slurm.knows(job, "CANCELLED")
