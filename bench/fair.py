"""Ordinary tenants and clusters beside one with a hundred times as much, by the workers of docker-compose.yml."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import groupby
from statistics import fmean, median, quantiles

import yaml
from django.db import transaction
from django.db.models import Sum

from bench import instance, jobs, served, world
from bench.meter import Cost, family_cpu, middle, server_cpu
from bench.result import DifferentWorkError, Figure, Goal, Result
from bench.scale import Scale
from bench.worker import until
from billing.models import PeriodTotal, Plan, Subscription
from billing.rating import engine, file_imports
from clusters import usage
from clusters.models import Account, Cluster, FileFormat, UsageFile
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Ownership, Project, Tenant
from portal.dev.embedded.redis import Redis
from portal.env import ROOT

NAMES = ("fair", "fairchanges", "fairfiles")
RUN, READY = "bench_fair_run", "bench_fair_ready"
ORDINARY, JOBS = 20, 1_000  # so many tenants or clusters, and the jobs of each
FIRST = 8  # as many more, whose work lets all processes load what they need
LARGE = 100  # times as many
PIECE = 1 << 20  # bytes of a stored file
WAKE = 2  # seconds: as often as the scheduler tells workers of what the outbox holds
MOST = 2.0  # times the seconds without the large one

Waits = Mapping[int, float]
"""Seconds from the message until the work of each ordinary one is done, by its key."""


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if not names & set(NAMES):
        return
    count = scale.of(JOBS)
    with Redis(instance.HOME):  # one of all rounds: a client keeps its connection
        if names & {"fair", "fairchanges"}:
            _rated_tenants(count)
        if "fair" in names:
            yield _result("fair", "p95 of tenants rated beside one of 100 times", scale, _Rating(postmaster))
        if "fairchanges" in names:
            title = "the same, its 100 accounts each by a message"
            yield _result("fairchanges", title, scale, _Changes(postmaster))
        if "fairfiles" in names:
            _clusters_with_files(count)
            yield _result("fairfiles", "p95 of files beside one of 100 times", scale, _Imports(postmaster))
        instance.drop(RUN, READY)


def _result(name: str, title: str, scale: Scale, measure: _Measure) -> Result:
    """The 95th percentile of the ordinary ones with the large one, beside that without it."""
    costs: dict[tuple[int, bool], list[Cost]] = {}
    means: dict[tuple[int, bool], list[float]] = {}
    for _ in range(scale.rounds):
        for count in (ORDINARY, 1):
            sums = []
            for large in (False, True):
                cost, waits = measure.run(count, large=large)
                costs.setdefault((count, large), []).append(cost)
                means.setdefault((count, large), []).append(fmean(waits.values()))
                sums.append(measure.sums())
            if sums[0] != sums[1]:
                raise DifferentWorkError(f"{sums}")

    def times(samples: Mapping[tuple[int, bool], Sequence[float]], count: int) -> float:
        return median(samples[count, True]) / median(samples[count, False])

    ours, limit = (middle(costs[ORDINARY, large]) for large in (True, False))
    walls = {key: [cost.wall for cost in each] for key, each in costs.items()}
    figures = (
        Figure("times the mean of 20", times(means, ORDINARY), MOST),
        Figure("times that of a single one", times(walls, 1), MOST),
        Figure("seconds of 20 without it, at the 95th percentile", median(walls[ORDINARY, False])),
        Figure("seconds of a single one without it", median(walls[1, False])),
    )
    load = f"load of this machine meanwhile: {os.getloadavg()[1]:.1f}"
    return Result(
        name, title, 1, "p95", ours, limit, Goal(at_most="2"), by_wall=True, detail=load, figures=figures
    )


class _Measure:
    """One kind of work of both: `services` do it, named as in docker-compose.yml."""

    services: tuple[str, ...] = ()

    def __init__(self, postmaster: int) -> None:
        self.postmaster = postmaster
        self.count = 0

    def run(self, count: int, *, large: bool) -> tuple[Cost, Waits]:
        """What so many ordinary ones wait, with the large one's message before theirs where `large`."""
        self.count = count
        instance.copy(READY, RUN)
        with ExitStack() as stack:
            workers = [stack.enter_context(_worker(service)) for service in self.services]
            _wait(workers)
            client, server = sum(family_cpu(worker.pid) for worker in workers), server_cpu(self.postmaster)
            waits = self._measure(workers[0], large=large)
            client = sum(family_cpu(worker.pid) for worker in workers) - client
            server = server_cpu(self.postmaster) - server
        late = quantiles(waits.values(), n=20)[-1] if len(waits) > 1 else max(waits.values())
        return Cost(client + server, client, late, 0), waits

    def keys(self) -> list[int]:
        """Of the large one, then of the others."""
        raise NotImplementedError

    def ask(self, large: Sequence[int], others: Sequence[int]) -> None:
        """Send the message of the large one, if any, and at once those of the others."""
        raise NotImplementedError

    def done(self) -> Iterable[int]:
        """Whose work is done, of all that were ever asked for."""
        raise NotImplementedError

    def sums(self) -> object:
        """What the ordinary ones' usage came to."""
        ordinary = _tenants()[1 + FIRST :][: self.count]
        totals = PeriodTotal.objects.filter(tenant__in=ordinary).values("tenant", "resource", "price_id")
        return list(
            totals.annotate(all=Sum("units")).filter(all__gt=0).order_by("tenant", "resource", "price_id")
        )

    def _measure(self, worker: subprocess.Popen[bytes], *, large: bool) -> Waits:
        first, *others = self.keys()
        self._until_done(worker, [], others[:FIRST])
        others = others[FIRST:][: self.count]
        ended = self._until_done(worker, [first] if large else [], others)
        return {key: ended[key] for key in others}

    def _until_done(
        self, worker: subprocess.Popen[bytes], large: Sequence[int], others: Sequence[int]
    ) -> dict[int, float]:
        """Seconds from the message until each was seen to be done."""
        from portal.celery import app

        ended: dict[int, float] = {}
        began = told = time.perf_counter()
        self.ask(large, others)

        def all_done() -> bool:
            nonlocal told
            now = time.perf_counter()
            if now - told > WAKE:
                told = now
                app.send_task("portal.core.outbox.tasks.dispatch")
            for key in self.done():
                ended.setdefault(key, now - began)
            return ended.keys() >= {*large, *others}

        until(all_done, worker, every=0.02)
        return ended


class _Rating(_Measure):
    services = ("worker-rate", "worker-collect")  # the second one for the queue `wake`

    def keys(self) -> list[int]:
        return _tenants()

    def ask(self, large: Sequence[int], others: Sequence[int]) -> None:
        from portal.celery import app

        with transaction.atomic():
            self.ask_large(large)
            outbox.add("billing.tasks.rate_tenants", tenant_ids=list(others))
        app.send_task("portal.core.outbox.tasks.dispatch")

    def ask_large(self, large: Sequence[int]) -> None:
        if large:
            outbox.add("billing.tasks.rate_tenants", tenant_ids=list(large))

    def done(self) -> Iterable[int]:
        wanted = OutboxMessage.objects.values_list("kwargs__tenant_ids", "done_at")
        undone = {key for keys, done in wanted if done is None for key in keys}
        return {key for keys, _ in wanted for key in keys} - undone


class _Changes(_Rating):
    def ask_large(self, large: Sequence[int]) -> None:
        accounts = engine.accounts_of(Tenant.objects.filter(pk__in=large))
        calls = [{"account_ids": [account], "tenant_ids": list(large)} for account in accounts]
        outbox.add_many("billing.tasks.rate_accounts", calls)


class _Imports(_Measure):
    services = ("worker-pull", "worker-collect")

    def keys(self) -> list[int]:
        return list(Cluster.objects.order_by("pk").values_list("pk", flat=True)[1:])

    def ask(self, large: Sequence[int], others: Sequence[int]) -> None:
        from portal.celery import app

        for cluster in (*large, *others):
            app.send_task("billing.tasks.files_due", kwargs={"cluster_id": cluster})

    def done(self) -> Iterable[int]:
        return UsageFile.objects.exclude(ended_at=None).values_list("cluster", flat=True)


def _rated_tenants(count: int) -> None:
    """READY: all is rated, and then every tenant is on the other plan from the beginning, as it turns out."""
    instance.copy(instance.EMPTY, READY)
    cluster = world.build(LARGE + FIRST + ORDINARY, charges=("gpu", "cpu"))
    large, project = _tenants()[0], Project.objects.order_by("tenant")[0].pk
    large_accounts = Account.objects.order_by("pk").values_list("pk", flat=True)[:LARGE]
    Ownership.objects.filter(account__in=list(large_accounts)).update(tenant=large, project=project)
    world.load_records(cluster, _jobs(count))
    engine.rate_accounts(usage.account_ids())
    Subscription.objects.all().delete()
    premium = Plan.objects.get(name="premium")
    since = datetime(2025, 1, 1, tzinfo=UTC)
    Subscription.objects.bulk_create(
        Subscription(tenant=tenant, plan=premium, since=since) for tenant in Tenant.objects.order_by("pk")
    )


def _clusters_with_files(count: int) -> None:
    """READY: a cluster for each tenant, whose file waits; the large one's was the first."""
    instance.copy(instance.EMPTY, READY)
    world.build(1 + FIRST + ORDINARY, charges=("gpu", "cpu"))
    moment = datetime.now(UTC)
    by_account = groupby(sorted(_jobs(count), key=_place), key=_place)
    for (number, work), ownership in zip(by_account, Ownership.objects.order_by("tenant"), strict=True):
        cluster = Cluster.objects.create(name=f"cluster{number:02d}")
        Account.objects.filter(pk=ownership.account_id).update(cluster=cluster)
        lines = "".join(jobs.sacct_lines(job._replace(account=number) for job in sorted(work))).encode()
        pieces = (lines[start : start + PIECE] for start in range(0, len(lines), PIECE))
        file_imports.store_file(
            cluster=cluster, name="jobs.txt", kind=FileFormat.SACCT, pieces=pieces, as_of=None, by="op",
            moment=moment,
        )  # fmt: skip


def _jobs(count: int) -> Iterator[jobs.Job]:
    """So many of each account, of which the large one has LARGE."""
    accounts = LARGE + FIRST + ORDINARY
    return jobs.jobs(accounts * count, accounts=accounts, days=45)


def _place(job: jobs.Job) -> int:
    """0 is the large one's."""
    return max(job.account - LARGE + 1, 0)


def _tenants() -> list[int]:
    """The large one, then those whose accounts come behind its own."""
    tenants = list(Tenant.objects.order_by("pk").values_list("pk", flat=True))
    return [tenants[0], *tenants[-FIRST - ORDINARY :]]


@contextmanager
def _worker(service: str) -> Iterator[subprocess.Popen[bytes]]:
    """Started by the command of docker-compose.yml, until the block ends."""
    command = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][service]["command"]
    worker = served.run(*command[2:], environ={"DATABASE_URL": served.url_of(RUN)})
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait()


def _wait(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Until all of them answer."""
    from portal.celery import app

    deadline = time.monotonic() + served.START_SECONDS
    while len(app.control.ping(timeout=1) or ()) < len(workers):
        if time.monotonic() > deadline:
            raise AssertionError(f"The workers do not answer: see {instance.HOME}/other.log.")
