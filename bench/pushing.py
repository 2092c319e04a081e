"""Usage that is pushed as events in batches of a thousand, over HTTP to one web process, until it is rated."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from bench import instance, jobs, served, world
from bench.meter import Cost, family_cpu, resident
from bench.result import DifferentWorkError, Figure, Result
from bench.scale import Scale
from billing.models import RatedJob
from portal.api import keys
from portal.api.resources.usage_events import LARGEST_BODY
from portal.core.tenants.models import OperatorRole, User

NAMES = ("push", "pushsums")
RUN, READY = "bench_push", "bench_push_ready"
EVENTS, BATCH, ACCOUNTS = 50_000, 1_000, 40
RATE = 2_000  # events a second
MOST = 150 * 1024  # KiB
METER = "llm-tokens"
PUSH = "/api/v1/usage-events?cluster=gpu1"


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if not names & set(NAMES):
        return
    moment = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    _prepare(moment)
    kinds = {"push": ("ended runs", _run), "pushsums": ("hourly sums of a declared meter", _sum)}
    for name, (what, event) in kinds.items():
        if name not in names:
            continue
        count = scale.of(EVENTS)
        batches = [
            json.dumps([event(number, moment) for number in range(start, min(start + BATCH, count))]).encode()
            for start in range(0, count, BATCH)
        ]
        large = json.dumps([_large(event(number, moment)) for number in range(min(BATCH, count))]).encode()
        cost = _pushed(batches, large, count, postmaster)
        figure = Figure("events a second of CPU", count / cost.cpu, RATE, rises=True)
        title = f"{what} pushed until rated"
        yield Result(name, title, count, "events", cost, cost, memory=(cost.peak, MOST), figures=(figure,))
    instance.drop(RUN, READY)


def _prepare(moment: datetime) -> None:
    """Accounts with a tenant each on a cluster that is pushed to, whose plan charges GPUs and tokens."""
    instance.copy(instance.EMPTY, READY)
    months = [moment.year * 12 + moment.month - 1 + away for away in range(-3, 3)]
    cluster = world.build(
        ACCOUNTS, borders=[datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in months]
    )
    cluster.kind = "push"
    cluster.save()
    world.price_tokens(METER)


def _pushed(batches: list[bytes], large: bytes, count: int, postmaster: int) -> Cost:
    """One batch after another. The peak is the largest that the web process was, also with the large one at the end."""
    instance.copy(READY, RUN)
    person = User.objects.create_user("op@cluster.example", operator_role=OperatorRole.ADMIN)
    key = keys.make(maker=person, tenant=None, name="push", scopes=["usage:push"], moment=datetime.now(UTC))
    headers = {"Authorization": f"Bearer {key.secret}", "Content-Type": "application/cloudevents-batch+json"}
    with served.site("", DATABASE_URL=served.url_of(RUN)) as site:
        site.sent("POST", PUSH, b"[]", headers)
        spent, began, peak = family_cpu(site.process.pid) + family_cpu(postmaster), time.perf_counter(), 0
        for batch in batches:
            site.sent("POST", PUSH, batch, headers)
            peak = max(peak, *(resident(pid) for pid in site.workers))
        wall = time.perf_counter() - began
        spent = family_cpu(site.process.pid) + family_cpu(postmaster) - spent
        site.sent("POST", PUSH, large, headers)
        peak = max(peak, *(resident(pid) for pid in site.workers))
    if missing := count - RatedJob.objects.count():
        raise DifferentWorkError(f"{missing} of {count} events are not rated")
    return Cost(spent, spent, wall, peak)


def _run(number: int, moment: datetime) -> dict[str, object]:
    started = moment - timedelta(days=30) + timedelta(seconds=number * 40)
    data = {
        "account": jobs.account_name(number % ACCOUNTS),
        "user": f"user{number % 480:05d}",
        "gpus": 1 << number % 4,
        "gpu_model": jobs.MODELS[number % 3],
        "cpu_milli": 12_000,
        "memory_mib": 61_440,
        "state": jobs.STATES[number % 6],
        "started": _text(started),
        "ended": _text(started + timedelta(seconds=30 + number * 7919 % 90_000)),
    }
    return _event(number, "run", moment, data)


def _sum(number: int, moment: datetime) -> dict[str, object]:
    start = moment - timedelta(days=30) + timedelta(hours=number // (ACCOUNTS * 12) % 700)
    data = {
        "meter": METER,
        "account": jobs.account_name(number % ACCOUNTS),
        "user": f"user{number % (ACCOUNTS * 12):05d}",
        "quantity": 1_000 + number * 7919 % 1_000_000,
        "start": _text(start),
        "end": _text(start + timedelta(hours=1)),
    }
    return _event(number, "sum", moment, data)


def _event(number: int, kind: str, moment: datetime, data: dict[str, object]) -> dict[str, object]:
    return {
        "specversion": "1.0",
        "id": str(number),
        "source": "https://scheduler.example/bench",
        "type": f"org.clustertab.usage.{kind}",
        "time": _text(moment),
        "data": data,
    }


def _large(event: dict[str, object]) -> dict[str, object]:
    """The same with attributes that nobody reads, so that a batch is as large as one may be."""
    return {**event, "traceparent": "0" * (LARGEST_BODY // BATCH - 800)}


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
