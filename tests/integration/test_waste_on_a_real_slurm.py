"""A job that holds a GPU of a real Slurm idle is announced and ended; one that works runs on."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import transaction
from django.db.models import F

from billing.models import RatedJob, WasteAction, WasteFinding
from billing.quotas.job_ends import EndTally
from billing.waste import end_run, review
from clusters import ledger, utilisation
from clusters.connectors.base import BusyHour, BusySource
from clusters.models import Act, Cluster, UsageRecord
from tests.builders import a_plan, a_tenant
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_pulls import connected, pull
from tests.integration.test_quota_of_a_real_slurm import port
from tests.integration.test_slurm_acts import job_state
from tests.waste_stories import a_rule

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.one_attempt]
HOUR = 3600


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def tells(cluster: Cluster, job: str, busy: int) -> None:
    """What telemetry would say of the job, had it run for hours: so many seconds of each were busy."""
    record = UsageRecord.objects.get(cluster=cluster, job_id=job)
    begin = int(now().timestamp()) // HOUR * HOUR
    hours = [  # the next one, too: it may begin before the job's end is due
        BusyHour(record.source_key, begin + place * HOUR, Decimal(busy), HOUR, BusySource.DEVICE, "GPU_UTIL")
        for place in range(-3, 2)
    ]
    ledger.lock(cluster)
    utilisation.store(cluster=cluster, hours=hours)


def ends() -> EndTally:
    """What the pass did that came to an act, as soon as one is due; what was left for minutes is tried at once."""
    for _ in range(20):
        time.sleep(1)
        done = end_run.end_waste(moment=now(), opens=port)
        if done.ended or done.troubles:
            return done
        WasteFinding.objects.update(next_at=now())
    left = list(WasteFinding.objects.values("state", "error", "idle_since", "due_at", "closed_at"))
    raise AssertionError(f"Nothing was ended: {left}")


def test_an_idle_job_of_a_real_slurm_is_announced_and_ended_and_a_busy_one_is_not(
    every_slurm: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = connected(every_slurm)
    Cluster.objects.update(may_end_jobs=True)
    a_tenant("globex", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "globex")])
    requeues = every_slurm.suite == "sid"  # 26.05, the only one that can over REST
    gpu = ("-p", "a100", "--gres=gpu:a100:1")
    idle, works = (every_slurm.submits("cyd", "globex", "sleep 300", *gpu) for _ in range(2))
    monkeypatch.setattr(review, "due_at", lambda _rule, moment: moment + timedelta(seconds=1))
    for module in (review, end_run):
        monkeypatch.setattr(module, "SETTLE", timedelta(0))
    monkeypatch.setattr(end_run, "LEAST", timedelta(days=-1))  # however late it is told again

    def are_read() -> bool:
        time.sleep(1)
        pull(cluster)
        runs = RatedJob.objects.filter(job_id__in=[idle, works], ended=None, seen_until__gt=F("started"))
        return runs.count() == 2

    try:
        for job in (idle, works):
            every_slurm.is_running(job)
        until(are_read)  # slurmdbd tells of them some seconds late
        with transaction.atomic():
            tells(cluster, idle, 0)
            tells(cluster, works, 1800)
        a_rule(action=WasteAction.REQUEUE)
        announced = now()  # of both, or the end may be due with the warning
        assert review.review_waste(moment=announced).findings == 1
        assert end_run.end_waste(moment=announced, opens=port).warned == 1
        done = ends()
        if requeues:
            assert (done.ended, done.troubles) == (1, [])
            until(lambda: job_state(every_slurm, idle).startswith("PENDING"))
            time.sleep(4)
            assert job_state(every_slurm, idle).startswith("PENDING")  # it is held, and its user lets it go
            every_slurm.slurm("env", "SLURM_LAB_AS=cyd", "scontrol", "release", idle)
            assert "held" not in job_state(every_slurm, idle)
        else:
            assert "cannot requeue jobs over REST" in done.troubles[0]
            assert job_state(every_slurm, idle).startswith("RUNNING")
            a_rule(action=WasteAction.CANCEL)
            announced = now()
            review.review_waste(moment=announced)
            end_run.end_waste(moment=announced, opens=port)
            assert ends().ended == 1
            until(lambda: job_state(every_slurm, idle) == "")
        row = WasteFinding.objects.get(ended_at__isnull=False)
        assert (row.job_id, row.state) == (idle, "requeued" if requeues else "ended")
        assert Act.objects.get(who=row.source).outcome == "done"
        assert job_state(every_slurm, works).startswith("RUNNING")
        assert not WasteFinding.objects.filter(job_id=works).exists()
    finally:
        for job in (idle, works):
            every_slurm.slurm("scancel", job)
            every_slurm.knows(job, "CANCELLED")
