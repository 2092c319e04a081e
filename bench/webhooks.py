"""A thousand webhooks by one worker, beside the bare requests; and how late they are while one endpoint is dead."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from statistics import quantiles

from django.db import transaction

from bench import instance, served
from bench.meter import Cost, children, family_cpu, own_cpu, resident
from bench.result import Goal, Result
from bench.scale import Scale
from portal.core.events import events
from portal.core.events.models import EventType
from portal.core.tenants.models import Tenant, User
from portal.core.vault import seal
from portal.core.webhooks import deliveries, signing
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook
from portal.dev.embedded.redis import Redis

NAMES = ("webhooks", "webhooksdead")
RUN = "bench_webhooks"
ENDPOINTS, PATIENCE = 50, 120  # seconds
PACE = 3.0  # seconds from one event of each endpoint to the next: 1,000 a minute
MOST = 100 * 1024  # KiB
COMMAND = ("portal.celery_command", "--quiet", "worker", "--queues", "webhooks", "--concurrency", "1")
SETTINGS = {"WEBHOOK_ALLOW_HTTP": "yes", "WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"}


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if not names & set(NAMES):
        return
    count = scale.of(1_000)
    port = served.free_port()
    endpoints = served.run("bench.webhook_endpoint", str(port), environ={})
    try:
        served.wait(endpoints, port)
        if "webhooks" in names:
            alone, _, size = _sent(port, count, postmaster, pace=0.2, dead=False)
            bare = _bare(port, count)
            title = f"{count:,} webhooks by one worker, beside bare requests"
            yield Result("webhooks", title, count, "webhooks", alone, bare, memory=(size, MOST), within=60)
        if "webhooksdead" in names:
            sides = [_sent(port, count, postmaster, pace=PACE, dead=dead) for dead in (True, False)]
            ours, limit = (Cost(cost.cpu, cost.client, late, cost.peak) for cost, late, _ in sides)
            title = "p95 of how late 1,000 a minute are, one dead"
            yield Result("webhooksdead", title, 1, "p95", ours, limit, Goal(at_most="1.5"), by_wall=True)
    finally:
        endpoints.terminate()
        endpoints.wait()
        instance.drop(RUN)


def _sent(port: int, count: int, postmaster: int, *, pace: float, dead: bool) -> tuple[Cost, float, int]:
    """What it costs, the p95 of the seconds from event to answer, and the worker's memory in KiB."""
    instance.copy(instance.EMPTY, RUN)
    _webhooks(port, dead=dead)
    environ = {"DATABASE_URL": served.url_of(RUN), **SETTINGS}
    with Redis(instance.HOME), _worker(environ) as worker:
        from portal.celery import app

        send = partial(app.send_task, "portal.core.webhooks.tasks.deliver", queue="webhooks")
        send()
        time.sleep(5)  # it has loaded all that it needs
        began, spent = time.perf_counter(), family_cpu(worker.pid) + family_cpu(postmaster)
        for batch in range(count // ENDPOINTS):
            _happen(batch * ENDPOINTS, dead=dead)
            send()
            time.sleep(max(0.0, began + (batch + 1) * pace - time.perf_counter()))
        _until(count, worker, send)
        wall, spent = time.perf_counter() - began, family_cpu(worker.pid) + family_cpu(postmaster) - spent
        size = max(resident(pid) for pid in (worker.pid, *children(worker.pid)))
    rows = Delivery.objects.filter(state=DeliveryState.DELIVERED).values_list("created_at", "tried_at")
    late = [(tried - created).total_seconds() for created, tried in rows if tried is not None]
    return Cost(spent, spent, wall, size), quantiles(late, n=20)[-1], size


def _webhooks(port: int, *, dead: bool) -> None:
    maker = User.objects.create_user("op@cluster.example")
    names = [f"lab-{number}" for number in range(ENDPOINTS)] + (["dead"] if dead else [])
    for name in names:
        Webhook.objects.create(
            tenant=Tenant.objects.create(slug=name, name=name),
            name="hook",
            url=f"http://127.0.0.1:{port}/{name}",
            secret=seal(signing.new_secret()),
            maker=maker,
            created_at=datetime.now(UTC),
        )


@transaction.atomic
def _happen(start: int, *, dead: bool) -> None:
    """One event for each endpoint; fifty for the dead one."""
    for tenant in Tenant.objects.order_by("pk"):
        for key in range(ENDPOINTS if tenant.slug == "dead" else 1):
            events.record(
                EventType.INVOICE_ISSUED, kind="inv", key=start + key, state="issued", tenant=tenant.pk
            )
    while deliveries.place_events(moment=datetime.now(UTC)):
        pass


@contextmanager
def _worker(environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    worker = served.run(*COMMAND, environ=environ)
    try:
        yield worker
    finally:
        pids = children(worker.pid)
        worker.kill()  # an attempt at the dead one is under way
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        worker.wait()


def _until(count: int, worker: subprocess.Popen[bytes], send: Callable[[], object]) -> None:
    """Until so many are delivered; meanwhile it wakes the worker up as the scheduler does."""
    end = time.monotonic() + PATIENCE
    while Delivery.objects.filter(state=DeliveryState.DELIVERED).count() < count:
        if time.monotonic() > end or worker.poll() is not None:
            raise AssertionError(f"The worker did not send them: see {instance.HOME}/other.log.")
        send()
        time.sleep(1)


def _bare(port: int, count: int) -> Cost:
    """The same bodies by the same client, one connection each, and nothing written down."""
    import httpx

    async def post(number: int) -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            await client.post(f"http://127.0.0.1:{port}/lab-{number % ENDPOINTS}", content=b"x" * 300)

    async def run() -> None:
        for start in range(0, count, ENDPOINTS):
            await asyncio.gather(*(post(number) for number in range(start, start + ENDPOINTS)))

    began, spent = time.perf_counter(), own_cpu()
    asyncio.run(run())
    spent = own_cpu() - spent
    return Cost(spent, spent, time.perf_counter() - began, 0)
