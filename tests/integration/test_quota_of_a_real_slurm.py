"""A budget that is used up blocks its account on a real Slurm: what runs runs on, and the block goes by itself."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F

from billing.models import QuotaAction, QuotaBlock, QuotaEvery, QuotaMeasure, RatedJob
from billing.quotas import blocks, quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from clusters import block_review, enforcement_plan
from clusters.connectors.acts import ActRefusedError
from clusters.connectors.slurm.acts import SlurmActs
from clusters.enforcement_plan import SchedulerPort
from clusters.models import AccountBlock, Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_plan, a_tenant
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_pulls import connected, pull
from tests.integration.test_slurm_acts import group_limits, job_state

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.one_attempt]


def port(cluster: Cluster) -> SchedulerPort:
    return enforcement_plan.open_port(cluster=cluster, clock=lambda: int(time.time()))


def takes_limits(cluster: Cluster) -> bool:
    with port(cluster) as opened:
        assert isinstance(opened.acts, SlurmActs)
        try:
            opened.acts.refuse_limits()
        except ActRefusedError:
            return False
    return True


def looks() -> None:
    """A pass, and what a worker carries out."""
    moment = datetime.now(UTC).replace(microsecond=0)
    review.review_quotas(moment=moment)
    done = blocks.enforce_blocks(moment=moment, opens=port)
    assert done.troubles == []


def allow(tenant: Tenant, hours: int, **fields: Any) -> None:
    defaults: dict[str, Any] = {"action": QuotaAction.NO_GPU_JOBS, "every": QuotaEvery.YEAR}
    terms = QuotaTerms(measure=QuotaMeasure.GPU_HOURS, amount=Decimal(hours), **{**defaults, **fields})
    moment = datetime.now(UTC).replace(microsecond=0)
    quotas.set_quota(tenant=tenant, name="yearly", terms=terms, by=Setter.OPERATOR, moment=moment)


def modify_by_hand(lab: Lab, limits: str) -> None:
    lab.slurm("sacctmgr", "-i", "modify", "account", "globex", "set", f"GrpTRES={limits}")


def test_quota_032_037_038_a_real_slurm_starts_no_gpu_job_until_the_budget_is_raised(
    every_slurm: Lab,
) -> None:
    cluster = connected(every_slurm)
    if not takes_limits(cluster):
        pytest.skip(f"Slurm {every_slurm.version} takes no limits over REST: the next test is of such.")
    globex = a_tenant("globex", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "globex")])
    before = group_limits(every_slurm, "globex")
    gpu = ("-p", "a100", "--gres=gpu:a100:1")
    runs = every_slurm.submits("cyd", "globex", "sleep 300", *gpu)
    jobs = [runs]
    try:
        every_slurm.is_running(runs)
        time.sleep(2)  # so that it has used something when it is read
        pull(cluster)
        allow(globex, 0)  # nothing may be used, and something was
        looks()
        assert QuotaBlock.objects.get().state == "blocked"
        assert group_limits(every_slurm, "globex").startswith("gres/gpu=0|")
        assert job_state(every_slurm, runs).startswith("RUNNING")
        waits = every_slurm.submits("cyd", "globex", "sleep 300", *gpu)
        jobs.append(waits)
        until(lambda: "Assoc" in job_state(every_slurm, waits))
        modify_by_hand(every_slurm, "gres/gpu=0,cpu=7")  # another limit is nobody's business
        assert block_review.review_blocks(moment=datetime.now(UTC), opens=port) == []
        modify_by_hand(every_slurm, "gres/gpu=1,cpu=-1")
        AccountBlock.objects.update(read_back_at=None)  # five minutes have gone by
        (sentence,) = block_review.review_blocks(moment=datetime.now(UTC), opens=port)
        assert sentence.endswith(": GrpTRES=gres/gpu is 1 and not our 0 any more: it is left as it is.")
        looks()
        assert group_limits(every_slurm, "globex").startswith("gres/gpu=1|")
        modify_by_hand(every_slurm, "gres/gpu=0")
        allow(globex, 10**6)
        looks()
        assert group_limits(every_slurm, "globex") == before
        until(lambda: job_state(every_slurm, waits).startswith("RUNNING"))
    finally:
        for job in jobs:
            every_slurm.slurm("scancel", job)
            every_slurm.knows(job, "CANCELLED")


@pytest.mark.parametrize("every_slurm", [""], indirect=True, ids=["installed"])
def test_quota_040_a_real_slurm_that_takes_no_limits_holds_gpu_jobs_instead_and_lets_only_these_go(
    every_slurm: Lab,
) -> None:
    cluster = connected(every_slurm)
    if takes_limits(cluster):
        pytest.skip(f"Slurm {every_slurm.version} takes limits over REST.")
    globex = a_tenant("globex", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "globex")])
    before = group_limits(every_slurm, "globex")
    gpu = ("-p", "a100", "--gres=gpu:a100:1")
    runs = every_slurm.submits("cyd", "globex", "sleep 300", *gpu)
    jobs = [runs]

    def submits(*options: str) -> str:
        jobs.append(every_slurm.submits("cyd", "globex", "sleep 300", "--begin=now+1hour", *options))
        return jobs[-1]

    def is_read() -> bool:
        pull(cluster)
        return RatedJob.objects.filter(job_id=runs, ended=None, seen_until__gt=F("started")).exists()

    try:
        every_slurm.is_running(runs)
        time.sleep(2)  # what is read in its first second has used nothing, and is not read again so soon
        until(is_read)
        waits, without, own = submits(*gpu), submits("-p", "cpu"), submits("--hold", *gpu)
        allow(globex, 0)
        looks()
        row = QuotaBlock.objects.get()
        assert (row.state, row.holds_instead) == ("blocked", True)
        assert "cannot have its limits set over REST" in row.error
        assert group_limits(every_slurm, "globex") == before
        assert job_state(every_slurm, runs).startswith("RUNNING")
        assert job_state(every_slurm, waits) == "PENDING JobHeldAdmin"
        assert "Held" not in job_state(every_slurm, without)
        assert job_state(every_slurm, own) == "PENDING JobHeldUser"
        later = submits(*gpu)
        QuotaBlock.objects.update(next_at=F("began_at"))  # a minute has gone by
        looks()
        assert job_state(every_slurm, later) == "PENDING JobHeldAdmin"
        allow(globex, 10**6)
        looks()
        assert "Held" not in job_state(every_slurm, waits) + job_state(every_slurm, later)
        assert job_state(every_slurm, own) == "PENDING JobHeldUser"
    finally:
        for job in jobs:
            every_slurm.slurm("scancel", job)
            every_slurm.knows(job, "CANCELLED")


def test_quota_041_a_real_slurm_starts_no_gpu_job_of_the_budgets_user_and_those_of_others(
    every_slurm: Lab,
) -> None:
    cluster = connected(every_slurm)
    if not takes_limits(cluster):
        pytest.skip(f"Slurm {every_slurm.version} takes no limits over REST: jobs are held alone.")
    acme = a_tenant("acme", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "acme_prod")])
    every_slurm.slurm(
        "sacctmgr", "-i", "modify", "user", "ben", "where", "account=acme_prod", "set", "GrpTRES=cpu=9"
    )
    before = associations(every_slurm)
    gpu = ("-p", "a100", "--gres=gpu:a100:1")
    jobs = [every_slurm.submits("ben", "acme_prod", "sleep 300", *gpu)]

    def submits(user: str) -> str:
        jobs.append(every_slurm.submits(user, "acme_prod", "sleep 300", *gpu))
        return jobs[-1]

    def is_read() -> bool:
        pull(cluster)
        return RatedJob.objects.filter(job_id=jobs[0], ended=None, seen_until__gt=F("started")).exists()

    try:
        every_slurm.is_running(jobs[0])
        time.sleep(2)  # what is read in its first second has used nothing, and is not read again so soon
        until(is_read)
        allow(acme, 0, user="ben", action=QuotaAction.HOLD_JOBS)
        looks()
        now = associations(every_slurm)
        assert "acme_prod|ben|cpu=9,gres/gpu=0|" in now
        assert now - before == {"acme_prod|ben|cpu=9,gres/gpu=0|"}  # nobody else's
        assert job_state(every_slurm, jobs[0]).startswith("RUNNING")
        waits, runs = submits("ben"), submits("ada")
        every_slurm.is_running(runs)
        until(lambda: "Assoc" in job_state(every_slurm, waits))  # not held yet, and does not start
        allow(acme, 10**6, user="ben", action=QuotaAction.HOLD_JOBS)
        looks()
        assert associations(every_slurm) == before
    finally:
        for job in jobs:
            every_slurm.slurm("scancel", job)
            every_slurm.knows(job, "CANCELLED")
        every_slurm.slurm(
            "sacctmgr", "-i", "modify", "user", "ben", "where", "account=acme_prod", "set", "GrpTRES=cpu=-1"
        )


def associations(lab: Lab) -> set[str]:
    """Account, user, GrpTRES and GrpSubmitJobs of each."""
    output = lab.slurm("sacctmgr", "-nP", "show", "assoc", "format=Account,User,GrpTRES,GrpSubmitJobs")
    return set(output.split())
