"""What a quota demands of one account, and the jobs that run there and that it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from django.db.models import F

from billing.models import Quota, QuotaAction, QuotaMeasure, RatedJob
from billing.quotas.status import amount_text, scope_text
from billing.quotas.terms import OF_JOBS
from billing.quotas.thresholds import Outcome
from clusters.models import Account, ClusterKind, UsageRecord, VanishedRun

LONGEST_REASON = 200
"""Characters of it that a block keeps."""


@dataclass(frozen=True, slots=True)
class Demand:
    """That a quota which is used up acts on an account."""

    outcome: Outcome
    account: Account  # with its cluster

    @property
    def quota(self) -> Quota:
        return self.outcome.quota

    @property
    def submits(self) -> bool:
        """Whether new jobs are refused, too."""
        return self.quota.action == QuotaAction.NO_SUBMISSIONS

    @property
    def holds(self) -> bool:
        """Whether waiting jobs are held, instead of a block of the account: Kubernetes holds queues as a whole."""
        by_job = self.quota.action == QuotaAction.HOLD_JOBS or bool(self.user)
        return by_job and (bool(self.user) or self.account.cluster.kind != ClusterKind.PROMETHEUS)

    @property
    def user(self) -> str:
        """Whose jobs are held; "": everybody's."""
        return self.quota.user if self.quota.action in OF_JOBS else ""

    @property
    def why(self) -> str:
        """As the scheduler's history has it."""
        quota, one = self.quota, self.outcome
        if quota.wallet_id is not None:
            return f"wallet of {scope_text(quota)} of {quota.tenant.slug} is below zero"[:LONGEST_REASON]
        used, amount = amount_text(one.figure.used, quota.unit), amount_text(one.amount, quota.unit)
        return f"budget {quota.name} of {quota.tenant.slug}: {used} of {amount} used"


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs, as its scheduler knows it."""

    key: str  # number@submission
    job_id: str
    user: str
    started: int  # epoch second
    gpus: Fraction  # whole ones


def list_running(quota: Quota, account: Account, *, older: bool = True) -> list[RunningJob]:
    """The jobs of the account that run and that the quota counts and may end, the longest running first.

    Those that began before the quota was made only where it says so, and `older` does. Three queries.
    """
    rows = RatedJob.objects.runs().filter(
        tenant=quota.tenant_id,
        cluster=account.cluster.name,
        account=account.name,
        ended=None,
        started__isnull=False,
        seen_until__gt=F("started"),
    )
    if quota.project_id is not None:
        rows = rows.filter(project=quota.project_id)
    if quota.user:
        rows = rows.filter(user=quota.user)
    if quota.measure == QuotaMeasure.GPU_HOURS:
        rows = rows.filter(gpus__gt=0)
    if not (quota.ends_older and older):
        rows = rows.filter(started__gte=int(quota.created_at.timestamp()))
    jobs = list(rows.exclude(state="SUSPENDED").order_by("started", "record_id"))
    return _known(jobs)


def list_all_running(account: Account) -> list[RunningJob]:
    """All that runs in the account, whatever counts it. Three queries."""
    rows = RatedJob.objects.runs().filter(
        cluster=account.cluster.name, account=account.name, ended=None, started__isnull=False
    )
    return _known(list(rows.exclude(state="SUSPENDED")))


def list_ended(account: Account, *, started_by: datetime, since: datetime) -> list[str]:
    """The numbers of its jobs that ran at one moment and were read to have ended since the other. One query."""
    rows = RatedJob.objects.runs().filter(
        cluster=account.cluster.name,
        account=account.name,
        started__lte=int(started_by.timestamp()),
        ended__gte=int(since.timestamp()),
    )
    return list(dict.fromkeys(rows.order_by("started", "record_id").values_list("job_id", flat=True)))


def _known(jobs: Sequence[RatedJob]) -> list[RunningJob]:
    """Without those that their scheduler has lost."""
    ids = [job.record_id for job in jobs]
    lost = set(VanishedRun.objects.filter(record__in=ids).values_list("record", flat=True))
    keys = dict(UsageRecord.objects.filter(pk__in=ids).values_list("pk", "source_key"))
    return [
        RunningJob(
            keys[job.record_id],
            job.job_id,
            job.user,
            job.started or 0,
            Fraction(job.gpus * job.share_num, job.share_den),
        )
        for job in jobs
        if job.record_id in keys and job.record_id not in lost
    ]
