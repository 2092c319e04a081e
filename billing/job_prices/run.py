"""Writing what jobs cost into their comments: each at most every half an hour, and few in a second."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.db.models import QuerySet

from billing.job_prices.comment import part_of, with_part, written_at
from billing.models import RatedJob
from billing.queries import live
from billing.quotas.quotas import list_quotas
from billing.quotas.status import load_statuses
from clusters import usage
from clusters.connectors.acts import NotStuckError
from clusters.connectors.base import ConnectorError
from clusters.connectors.slurm.comments import JobComment, SlurmComments
from clusters.models import Cluster, ClusterKind, Connection, UsageRecord
from clusters.scheduler_clients import slurm
from portal.core import locks
from portal.core.locks import Work
from portal.core.tenants.models import Tenant
from portal.core.tenants.ownership import accounts_of
from portal.core.tenants.scope import tenant_scope
from portal.sentences import sentence

EVERY = timedelta(minutes=30)
"""So long what is written of a job stands; and until a cluster that refused is asked again."""
PAUSE = 50  # milliseconds after each write: 20 in a second
LONGEST = 60  # seconds of one pass; the next goes on with what is oldest

Opener = Callable[[Cluster], SlurmComments]


@dataclass(frozen=True, slots=True)
class PriceTally:
    """How many jobs' comments were written; `error`: why no more, in a sentence."""

    written: int = 0
    error: str = ""


def open_comments(cluster: Cluster, *, clock: Callable[[], int]) -> SlurmComments:
    """Those of the cluster's slurmrestd; it calls nobody yet. Raises ConnectorError where there is none."""
    return SlurmComments(slurm(cluster=cluster, clock=clock)[1])


def list_due(*, moment: datetime) -> QuerySet[Cluster]:
    """The clusters whose jobs are to be told what they cost, without those that refused it lately."""
    rows = Cluster.objects.filter(job_prices=True, kind=ClusterKind.SLURM, connection__isnull=False)
    refused = Connection.objects.filter(job_prices_at__gt=moment - EVERY).exclude(job_prices_error="")
    return rows.exclude(connection__in=refused).order_by("name")


def rest(milliseconds: int) -> None:
    time.sleep(milliseconds / 1000)


def write_job_prices(
    *, cluster: Cluster, moment: datetime, opens: Opener, rests: Callable[[int], None] = rest
) -> PriceTally:
    """Write what each waiting and running job of the cluster costs, if its comment does not say so of late.

    Only our part of a comment is replaced. Of two at once, one does nothing. What the comment itself says of when it
    was written is all that is kept, so that it may be killed anywhere. Must not be called inside a transaction.
    """
    with locks.alone(Work.PRICING_JOBS, cluster.pk) as ours:
        if not ours:
            return PriceTally()
        written = [0]
        try:
            with opens(cluster) as comments:
                _write(cluster, comments, moment, rests, written)
            error = ""
        except ConnectorError as refusal:
            error = sentence(refusal)
        Connection.objects.filter(cluster=cluster).update(job_prices_at=moment, job_prices_error=error)
        return PriceTally(written[0], error)


def _write(
    cluster: Cluster,
    comments: SlurmComments,
    moment: datetime,
    rests: Callable[[int], None],
    written: list[int],
) -> None:
    due = [(at, job) for job in comments.read_all() if _is_due(at := written_at(job.text), moment)]
    due.sort(key=lambda pair: (pair[0] is not None, pair[0] or moment, pair[1].id))
    jobs = [job for _, job in due]
    parts = load_parts(cluster, jobs, moment=moment)
    end = time.monotonic() + LONGEST
    trouble: NotStuckError | None = None
    for job in jobs:
        if time.monotonic() > end:
            break
        if part := parts.get(job.key):
            try:
                written[0] += comments.write(job, partial(_edited, part=part, moment=moment))
            except NotStuckError as error:  # of this job alone
                trouble = trouble or error
            rests(PAUSE)
    if trouble is not None:
        raise trouble


def _edited(text: str, part: str, moment: datetime) -> str:
    """Unless somebody has written it meanwhile."""
    return with_part(text, part, moment=moment) if _is_due(written_at(text), moment) else text


def _is_due(at: datetime | None, moment: datetime) -> bool:
    return at is None or not moment - EVERY < at <= moment


def load_parts(cluster: Cluster, jobs: Sequence[JobComment], *, moment: datetime) -> Mapping[str, str]:
    """By key of a job what its comment is to say; only of jobs that were read and whose account has an owner.

    A fixed number of queries for each tenant with such a job.
    """
    keys = {job.key for job in jobs}
    records = UsageRecord.objects.filter(cluster=cluster, source_key__in=keys)
    key_of = dict(records.values_list("pk", "source_key"))
    rows: dict[Tenant, list[RatedJob]] = defaultdict(list)
    rated = RatedJob.objects.filter(record_id__in=key_of, ended=None).select_related("project", "tenant")
    for row in rated.order_by("tenant", "record_id"):
        rows[row.tenant].append(row)
    parts = {}
    for tenant, its in rows.items():
        counting = list_quotas(tenant).filter(wallet=None, lends=False)  # those that count jobs
        statuses = [one for one in load_statuses(list(counting), moment=moment) if one.is_open_at(moment)]
        marks = usage.marks(accounts_of(tenant, at=moment))
        with tenant_scope(tenant):  # as its own page reads them
            jobs_of_tenant = live.list_open(tenant, its, marks, moment=moment)
        for job in jobs_of_tenant:
            if part := part_of(job, statuses):
                parts[key_of[job.job.row.record_id]] = part
    return parts
