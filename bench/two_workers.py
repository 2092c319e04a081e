"""Rating all tenants again by two workers, beside one: each a process of its own, as on hosts of their own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.db import transaction

from bench import instance, jobs, limits, served, world
from bench.meter import Cost, family_cpu, middle, server_cpu
from bench.result import DifferentWorkError, Figure, Goal, Result
from bench.scale import Scale
from bench.worker import until
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.dev.embedded.redis import Redis

NAMES = ("twoworkers",)
RUN, READY = "bench_workers_run", "bench_workers_ready"
TENANTS, JOBS = 50, 200_000
COMMAND = (
    "portal.celery_command",
    "--quiet",
    "worker",
    "--pool",
    "solo",
    "--without-gossip",
    "--without-mingle",
)


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if not names & set(NAMES):
        return
    count = scale.of(JOBS)
    instance.copy(instance.EMPTY, READY)
    cluster = world.build(TENANTS, charges=("gpu", "cpu"), changes=True)
    world.load_records(cluster, jobs.jobs(count, accounts=TENANTS, days=45))
    costs: dict[int, list[Cost]] = {1: [], 2: []}
    sums = []
    with Redis(instance.HOME):  # one of all rounds: a client keeps its connection
        for workers in list(costs) * scale.rounds:
            costs[workers].append(_rate(workers, postmaster))
            sums.append(limits.sums("billing"))
    if any(each != sums[0] for each in sums):
        raise DifferentWorkError(f"{sums}")
    instance.drop(RUN, READY)
    one, two = middle(costs[1]), middle(costs[2])
    load = os.getloadavg()[1]
    yield Result(
        "twoworkers", "rating of 50 tenants by two workers, beside one", count, "usage", two, one,
        Goal(at_least="1.40"), by_wall=True, detail=f"load of this machine meanwhile: {load:.1f}",
        figures=(Figure("times the CPU of one", two.cpu / one.cpu),),
    )  # fmt: skip


def _rate(count: int, postmaster: int) -> Cost:
    """From the message that wants it until the last tenant's is done, by that many workers that wait for it."""
    from portal.celery import app

    instance.copy(READY, RUN)
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(number)) for number in range(count)]
        deadline = time.monotonic() + served.START_SECONDS
        while len(app.control.ping(timeout=1) or ()) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"The workers do not answer: see {instance.HOME}/other.log.")
        began, server = time.perf_counter(), server_cpu(postmaster)
        client = sum(family_cpu(worker.pid) for worker in workers)
        with transaction.atomic():
            outbox.add(
                "billing.tasks.rate_tenants", tenant_ids=list(Tenant.objects.values_list("pk", flat=True))
            )
        app.send_task("portal.core.outbox.tasks.dispatch")
        until(lambda: not OutboxMessage.objects.undone().exists(), workers[0])
        wall, server = time.perf_counter() - began, server_cpu(postmaster) - server
        client = sum(family_cpu(worker.pid) for worker in workers) - client
    return Cost(client + server, client, wall, 0)


@contextmanager
def _worker(number: int) -> Iterator[subprocess.Popen[bytes]]:
    """Takes what it is sent until the block ends."""
    name = ("--hostname", f"rate{number}@%h")
    process = served.run(*COMMAND, *name, environ={"DATABASE_URL": served.url_of(RUN)})
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
