"""A budget that holds what waits and ends what runs, on a real Slurm, with the product's own pull before each end."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db.models import F

from billing.models import QuotaAction, QuotaEnding, QuotaEvery, QuotaMeasure, RatedJob
from billing.quotas import blocks, ending_run, endings, quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_plan, a_tenant
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_pulls import connected, pull
from tests.integration.test_quota_of_a_real_slurm import port
from tests.integration.test_slurm_acts import job_state

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.one_attempt]


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def allow(tenant: Tenant, hours: int, action: QuotaAction) -> None:
    terms = QuotaTerms(
        measure=QuotaMeasure.GPU_HOURS,
        amount=Decimal(hours),
        every=QuotaEvery.YEAR,
        user="cyd",
        action=action,
        ends_older=action == QuotaAction.END_JOBS,
    )
    quotas.set_quota(tenant=tenant, name="yearly", terms=terms, by=Setter.OPERATOR, moment=now())


def looks() -> None:
    """A pass, and what workers carry out."""
    review.review_quotas(moment=now())
    assert blocks.enforce_blocks(moment=now(), opens=port).troubles == []


def test_quota_031_034_a_real_slurm_has_its_jobs_held_released_and_ended(
    every_slurm: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = connected(every_slurm)
    Cluster.objects.update(may_end_jobs=True)
    globex = a_tenant("globex", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "globex")])
    gpu = ("-p", "a100", "--gres=gpu:a100:1")
    runs = every_slurm.submits("cyd", "globex", "sleep 300", *gpu)
    waits = every_slurm.submits("cyd", "globex", "sleep 300", "--begin=now+1hour", *gpu)

    def is_read() -> bool:
        time.sleep(1)
        pull(cluster)
        return RatedJob.objects.filter(job_id=runs, ended=None, seen_until__gt=F("started")).exists()

    try:
        every_slurm.is_running(runs)
        until(is_read)  # slurmdbd tells of it some seconds late
        allow(globex, 0, QuotaAction.HOLD_JOBS)  # nothing may be used, and something was
        looks()
        until(lambda: "JobHeld" in job_state(every_slurm, waits))
        assert job_state(every_slurm, runs).startswith("RUNNING")
        allow(globex, 10**6, QuotaAction.HOLD_JOBS)
        looks()
        until(lambda: "JobHeld" not in job_state(every_slurm, waits))
        monkeypatch.setattr(endings, "grace", lambda _: timedelta(seconds=1))
        allow(globex, 0, QuotaAction.END_JOBS)
        looks()
        assert job_state(every_slurm, runs).startswith("RUNNING")
        time.sleep(2)
        done = ending_run.end_jobs(moment=now(), opens=port)
        assert (done.ended, done.troubles) == (1, [])
        until(lambda: job_state(every_slurm, runs) == "")
        assert "JobHeld" in job_state(every_slurm, waits)  # it waits still, and is held
        assert QuotaEnding.objects.get().jobs == [runs]
    finally:
        allow(globex, 10**6, QuotaAction.HOLD_JOBS)
        looks()  # which takes the limit from the user's association, for the stories after this one
        for job in (runs, waits):
            every_slurm.slurm("scancel", job)
            every_slurm.knows(job, "CANCELLED")
