"""What quotas cost those who do not look at them: rating that says whose figures changed, and a worker's memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from unittest.mock import patch

from bench import instance, jobs, quotas, served, world
from bench.meter import Cost, children, family_cpu, measure, resident
from bench.result import DifferentWorkError, Figure, Result
from bench.scale import Scale
from bench.worker import COMMAND, until
from bench.worker_tasks import RATED
from billing.models import QuotaChange, RatedJob
from billing.quotas import review
from billing.rating import engine
from clusters import usage
from portal.core.tenants.models import Tenant
from portal.dev.embedded.redis import Redis

NAMES = ("ratequotas", "workerquotas")
RUN, READY, WITHOUT = "bench_quota_run", "bench_quota_ready", "bench_quota_without"
TENANTS, JOBS = 50, 40_000
ROUNDS = 15  # what is looked for is less than what two runs of the same differ by
PASSES = 3
NOTHING = "SELECT FROM rate_offer WHERE false"


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if "ratequotas" in names:
        yield _rating(scale, postmaster)
    if "workerquotas" in names:
        yield _memory(scale)


def _rating(scale: Scale, postmaster: int) -> Result:
    """Ten quotas of each tenant, and none with what rating does for quotas left out: by turns, either first."""
    count = scale.of(JOBS)
    instance.copy(instance.EMPTY, WITHOUT)
    cluster = world.build(TENANTS, charges=("gpu", "cpu"), changes=True)
    world.load_records(cluster, jobs.jobs(count, accounts=TENANTS, days=45))
    world.resolve_terms()
    instance.copy(WITHOUT, READY)
    tenants = list(Tenant.objects.order_by("pk"))
    quotas.set_quotas(tenants)
    review.review_quotas(moment=quotas.NOW)
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for turn in range(ROUNDS if scale.is_full else 1):
        for on in (True, False) if turn % 2 else (False, True):
            costs[on].append(_rate(count, postmaster, on=on))
    instance.drop(RUN, READY, WITHOUT)
    pairs = zip(costs[True], costs[False], strict=True)
    more = (median(one.cpu / other.cpu for one, other in pairs) - 1) * 100
    ours, limit = (min(costs[on], key=lambda cost: cost.cpu) for on in (True, False))
    figures = (
        Figure(
            "per cent of CPU that quotas add to it, least beside least", (ours.cpu / limit.cpu - 1) * 100, 3
        ),
        Figure("the same, the middle of the pairs", more),
    )
    title = f"rating with ten quotas of {TENANTS} tenants, beside none"
    return Result("ratequotas", title, count, "usage", ours, limit, figures=figures)


def _rate(count: int, postmaster: int, *, on: bool) -> Cost:
    instance.copy(READY if on else WITHOUT, RUN)
    changes = engine.writing.QUOTAS_CHANGED if on else NOTHING
    with patch.object(engine.writing, "QUOTAS_CHANGED", changes):
        cost = measure(lambda: engine.rate_accounts(usage.account_ids()), postmaster)
    if not RatedJob.objects.exists() or QuotaChange.objects.exists() != on:
        raise DifferentWorkError(f"of {count} jobs quotas were told {'nothing' if on else 'something'}")
    return cost


def _memory(scale: Scale) -> Result:
    """Of two workers that rate all jobs alike: one looks at all of 10,000 quotas, three times."""
    tenants = quotas.build(scale, 1)
    instance.use(quotas.RUN)
    with Redis(instance.HOME):
        without = _worker(0)
        cost = _worker(PASSES)
    instance.drop(quotas.RUN)
    grown = (cost.peak - without.peak) / 1024
    figures = (Figure("MiB that passes over quotas add to a worker", grown, 10),)
    title = "memory of a worker that looks at quotas, beside one that does not"
    amount = len(tenants) * 10
    return Result("workerquotas", title, amount, "quotas", cost, without, figures=figures)


def _worker(passes: int) -> Cost:
    """A new one that rates, and looks at all quotas so many times."""
    from portal.celery import app

    process = served.run(*COMMAND, environ={"DATABASE_URL": served.url_of(quotas.RUN)})
    try:
        began = time.perf_counter()
        rated = instance.HOME / RATED
        app.send_task("bench.worker_tasks.rate_everything")
        until(rated.exists, process)
        rated.unlink()
        for _ in range(passes):
            QuotaChange.objects.bulk_create(QuotaChange(tenant=tenant) for tenant in Tenant.objects.all())
            app.send_task("bench.worker_tasks.pass_over_quotas", args=[quotas.NOW.isoformat()])
            until(lambda: not QuotaChange.objects.exists(), process)
        wall, spent = time.perf_counter() - began, family_cpu(process.pid)
        size = max(resident(pid) for pid in (process.pid, *children(process.pid)))
    finally:
        process.terminate()
        process.wait()
    return Cost(spent, spent, wall, size)
