"""Ten quotas of each of many tenants: a pass where nothing happened, one where much did, and questions before jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from bench import instance, jobs, world
from bench.meter import Cost, exact_cpu, measure, middle
from bench.result import DifferentWorkError, Figure, Result
from bench.scale import Scale
from billing.admission import check, follow
from billing.models import Quota, QuotaAction, QuotaChange, QuotaEvery, QuotaMeasure, QuotaPeriod
from billing.quotas import quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from billing.rating import engine
from clusters import usage
from clusters.connectors.base import UsageFact
from clusters.models import Cluster, Connection
from portal.core.tenants.models import Tenant

NAMES = ("quotas", "mayrun")
RUN = "bench_quotas"
TENANTS, JOBS, OPEN, CHANGED = 1_000, 20_000, 5_000, 100
DAYS = 14
NOW = datetime(2026, 1, 20, 12, tzinfo=UTC)
IDLE_PASSES = 50  # one takes less than the clock can tell
QUESTIONS, WARM = 300, 10
MORE_JOBS = 10

CLOSED = "UPDATE clusters_usagerecord SET ended = least(ended, %s) WHERE ended > %s"
RUNS_ON = """
UPDATE clusters_usagerecord SET ended = NULL, seen_until = %s, state = 'RUNNING', started = least(started, %s)
WHERE id > %s
"""
PLAIN = """
SELECT q.id, sum(d.units) FROM billing_quota q
JOIN billing_dailyusage d ON d.tenant_id = q.tenant_id AND d.day >= '2026-01-01' AND d.day < '2026-02-01'
JOIN billing_usageseries s ON s.tenant_id = d.tenant_id AND s.id = d.series_id
 AND (q."user" = '' OR s."user" = q."user") AND (q.queue = '' OR s.queue = q.queue)
 AND (q.gpu_model = '' OR s.gpu_model = q.gpu_model)
WHERE q.tenant_id = ANY (%s) GROUP BY q.id
"""


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if not names & set(NAMES):
        return
    tenants = build(scale, 1)
    few = _Passes(tenants, postmaster, scale)
    if "quotas" in names:
        few.run()
    if "mayrun" in names:
        yield _questions(tenants, postmaster, scale)
    if "quotas" in names:
        many = _Passes(build(scale, MORE_JOBS), postmaster, scale)
        many.run()
        yield few.result(many)
    instance.drop(RUN)


def build(scale: Scale, more: int) -> list[Tenant]:
    """The tenants; the first of them have all the jobs that run on."""
    instance.copy(instance.EMPTY, RUN)
    count = scale.of(TENANTS)
    cluster = world.build(count)
    cluster.complete_through = NOW
    cluster.kind = "slurm"
    cluster.save()
    Connection.objects.create(cluster=cluster, base_url="http://127.0.0.1:6820")
    world.load_records(cluster, jobs.jobs(scale.of(JOBS) * more, accounts=count, days=DAYS))
    now = int(NOW.timestamp())
    with connection.cursor() as cursor:
        cursor.execute(CLOSED, [now, now])
        cursor.execute("SELECT max(id) FROM clusters_usagerecord")
        newest = cursor.fetchone()[0]
    first = jobs.FIRST + DAYS * jobs.DAY + 7
    changed = min(CHANGED, count)
    world.load_records(cluster, jobs.jobs(scale.of(OPEN), accounts=changed, days=1, first=first, seed=2))
    with connection.cursor() as cursor:
        cursor.execute(RUNS_ON, [now - 120, now - 3600, newest])
    engine.rate_accounts(usage.account_ids())
    tenants = list(Tenant.objects.order_by("pk"))
    set_quotas(tenants)
    review.review_quotas(moment=NOW)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return tenants


def set_quotas(tenants: list[Tenant]) -> None:
    """Ten each: of all in money and in GPU-hours, and of users, GPU models and queues."""
    users: list[dict[str, Any]] = [{"user": f"user{number:05d}"} for number in range(3)]
    models: list[dict[str, Any]] = [{"gpu_model": model} for model in jobs.MODELS]
    scopes: list[dict[str, Any]] = [{}, {}, *users, *models, *({"queue": queue} for queue in jobs.QUEUES[:2])]
    first, *others = tenants
    for number, scope in enumerate(scopes):
        measure_ = QuotaMeasure.GPU_HOURS if number % 2 else QuotaMeasure.MONEY
        action = QuotaAction.NOTIFY if scope else QuotaAction.NO_GPU_JOBS
        terms = QuotaTerms(
            measure=measure_, amount=Decimal(10**6), every=QuotaEvery.MONTH, action=action, **scope
        )
        name = f"of-{number}"
        quotas.set_quota(tenant=first, name=name, terms=terms, by=Setter.OPERATOR, moment=NOW)
    rows = list(Quota.objects.filter(tenant=first))
    for place, tenant in enumerate(others, 1):
        for row in rows:
            row.pk, row.tenant = None, tenant
            if row.user:
                row.user = f"user{place * jobs.USERS + int(row.name[-1]) - 2:05d}"
        Quota.objects.bulk_create(rows)
    QuotaChange.objects.bulk_create(QuotaChange(tenant=tenant) for tenant in tenants)


def pass_over(moment: datetime, *, times: int = 1) -> None:
    """As the task has it."""
    for _ in range(times):
        follow.follow_reservations(moment=moment)
        review.review_quotas(moment=moment)


@dataclass(slots=True)
class _Passes:
    """What passes cost in one database."""

    tenants: list[Tenant]
    postmaster: int
    scale: Scale
    idle: float = 0  # milliseconds of CPU
    queries: int = 0
    changed: Cost | None = None
    plain: Cost | None = None

    def run(self) -> None:
        moment = NOW + timedelta(seconds=1)
        with CaptureQueriesContext(connection) as queries:
            pass_over(moment)
        texts = [query["sql"] for query in queries.captured_queries]
        self.queries = sum(text not in {"BEGIN", "COMMIT"} for text in texts)
        whole = measure(partial(pass_over, moment, times=IDLE_PASSES), self.postmaster)
        self.idle = whole.cpu / IDLE_PASSES * 1_000
        ids = [tenant.pk for tenant in self.tenants[:CHANGED]]
        costs = []
        for turn in range(2, 2 + max(self.scale.rounds, 3)):
            QuotaChange.objects.bulk_create(QuotaChange(tenant_id=pk) for pk in ids)
            then = NOW + timedelta(seconds=turn)
            costs.append(measure(partial(pass_over, then), self.postmaster))
            looked_at = QuotaPeriod.objects.filter(evaluated_at=then).count()
            if looked_at != 10 * len(ids):
                raise DifferentWorkError(f"{looked_at} quotas were looked at, not {10 * len(ids)}")
        self.changed = middle(costs)
        self.plain = middle([measure(partial(_sum, ids), self.postmaster) for _ in range(3)])

    def result(self, many: _Passes) -> Result:
        assert self.changed is not None
        assert self.plain is not None
        assert many.changed is not None
        figures = (
            Figure("milliseconds of CPU of a pass where nothing happened", self.idle, 50),
            Figure("its queries", self.queries, 5),
            Figure("seconds of CPU with 100 tenants changed and 5,000 jobs that run on", self.changed.cpu, 1),
            Figure("the same with ten times the jobs, beside it", many.changed.cpu / self.changed.cpu, 1.2),
            Figure("milliseconds where nothing happened with ten times the jobs", many.idle, 50),
        )
        amount = 10 * min(CHANGED, len(self.tenants))
        title = "a pass over changed quotas, beside one plain sum"
        return Result("quotas", title, amount, "quotas", self.changed, self.plain, figures=figures)


def _sum(tenants: list[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(PLAIN, [tenants])
        cursor.fetchall()


def _questions(tenants: list[Tenant], postmaster: int, scale: Scale) -> Result:
    """Each of another tenant, in its account; a hundredth is of those with many jobs that run on."""
    cluster = Cluster.objects.get()
    count = scale.of(QUESTIONS)
    questions = [tenants[place * 7 % len(tenants)] for place in range(count)]
    _ask(questions[:WARM], cluster)  # a connection plans its statements at the first questions
    backend = _backend()
    costs = [_cost(partial(_ask, [tenant], cluster), backend) for tenant in questions]
    slowest = sorted(costs)[count * 99 // 100 - 1]
    ours = measure(partial(_ask, questions, cluster), postmaster)
    plain = measure(partial(_sum_by_tenant, questions), postmaster)
    figures = (
        Figure("milliseconds of CPU of 99 of 100 questions", slowest * 1_000, 50),
        Figure("milliseconds of one", ours.cpu / count * 1_000),
    )
    title = "may this job run, of ten quotas, beside a plain sum"
    return Result("mayrun", title, count, "questions", ours, plain, figures=figures)


def _ask(tenants: list[Tenant], cluster: Cluster) -> None:
    """Once of each."""
    start = int(NOW.timestamp())
    for tenant in tenants:
        job = UsageFact(
            "", tenant.slug, "user00001", gpus=8, gpu_model="a100", started=start, ended=start + 6 * 3600
        )
        check.check_job(tenant=tenant, cluster=cluster.name, job=job, now=NOW)


def _sum_by_tenant(tenants: list[Tenant]) -> None:
    for tenant in tenants:
        _sum([tenant.pk])


def _backend() -> int:
    """The process of the server that answers this one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _cost(work: Callable[[], object], backend: int) -> float:
    """Seconds of CPU, the backend's too."""
    client, server = time.process_time(), exact_cpu(backend)
    work()
    return time.process_time() - client + exact_cpu(backend) - server
