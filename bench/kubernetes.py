"""A day of 5,000 pods in a real Prometheus: pulled at once and hour by hour, beside the same queries alone."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest import mock

import httpx

from bench import instance, pulling
from bench.meter import Cost, measure, middle
from bench.result import DifferentWorkError, Goal, Result
from bench.scale import Scale

NAMES = ("kube", "kubehours")
RUN = "bench_run"
HOUR, DAY = 3_600, 86_400
NAMESPACES = 50  # among which the lab spreads its pods
MOST = 200 * 1024  # KiB that the pulling process may hold
WITHIN = 30  # seconds for a day pulled at once

PULL = """
from datetime import UTC, datetime
for since, until in {windows}:
    told = [datetime.fromtimestamp(at, UTC).isoformat() for at in (since, until)]
    call_command("pull_usage", "kube", "--since", told[0], "--until", told[1], stdout=open(os.devnull, "w"))
"""


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """Usage with utilisation, stored and rated. Both pulls have to come to the same rows."""
    if not names & set(NAMES):
        return
    pods = scale.of(5_000)
    try:
        with _prometheus(pods) as (url, base):
            day, hours = [(base, base + DAY)], [(at, at + HOUR) for at in range(base, base + DAY, HOUR)]
            outcomes = {}
            for name, windows in zip(NAMES, (day, hours), strict=True):
                queries = _queries(url, windows)
                ours, least = [], []
                for _ in range(scale.rounds):
                    _connect(url, base)
                    ours.append(pulling.pulled(postmaster, PULL.format(windows=windows)))
                    outcomes[name] = _rows()
                    least.append(measure(partial(_ask, url, queries), postmaster))
                yield _result(name, pods, len(queries), middle(ours), middle(least))
            if outcomes["kube"] != outcomes["kubehours"]:
                raise DifferentWorkError(
                    f"a day at once {outcomes['kube']}, by the hour {outcomes['kubehours']}"
                )
    except _AbsentError as error:
        sys.stderr.write(f"kube is left out. {error}\n")
    finally:
        instance.drop(RUN)


class _AbsentError(Exception):
    """There is no Prometheus to be had here."""


def _result(name: str, pods: int, queries: int, ours: Cost, least: Cost) -> Result:
    how = "a day at once" if name == "kube" else "hour by hour"
    return Result(
        name, f"Prometheus → usage, {how}, {queries} queries", pods, "pods", ours, least,
        Goal(), by_wall=True, memory=(ours.peak, MOST), within=WITHIN if name == "kube" else None,
    )  # fmt: skip


@contextmanager
def _prometheus(pods: int) -> Iterator[tuple[str, int]]:
    """Its address and the day's beginning. Half of the pods run all day, and the device of each is told of."""
    from tests.integration import prom_lab

    if not prom_lab.SCRIPT.exists():
        raise _AbsentError("It needs the lab of ../shared/labs/prom.")
    os.environ |= {"PROM_LAB_SCALE": "1", "PROM_LAB_DAYS": "1"}  # of it only the programs are of use here
    try:
        lab = prom_lab.Lab("push")
    except prom_lab.AbsentError as error:
        raise _AbsentError(str(error)) from None
    try:
        generator = prom_lab.generator()
        with prom_lab.bare(lab) as url:
            generator.push(url, _history(generator, pods).out.runs())
            yield url, int(generator.BASE)
    finally:
        lab.purge()


def _history(generator: Any, pods: int) -> Any:
    generator.D = DAY + HOUR  # so that those which outlive the day are seen to do so
    history = generator.Lab(1, 1).scale(pods)
    for number, pod in enumerate(history.pods):
        since = max(pod["scheduled"], generator.BASE) + 5
        history.util("n-0", str(number), [(since, pod["ended"] or history.end, number % 100 / 100)], pod)
    return history


def _connect(url: str, base: int) -> None:
    from clusters.models import Cluster, Connection
    from tests.builders import a_plan, a_tenant

    instance.copy(instance.EMPTY, RUN)
    cluster = Cluster.objects.create(name="kube", kind=Cluster.Kind.PROMETHEUS)
    a_tenant("acme", plan=a_plan(), accounts=[(cluster, f"ns-{number}") for number in range(NAMESPACES)])
    Connection.objects.create(
        cluster=cluster, base_url=url, first_usage_from=datetime.fromtimestamp(base, UTC)
    )


def _rows() -> tuple[int, int, str]:
    """Records, hours of utilisation, and a digest of both."""
    from clusters.models import UsageRecord, UtilisationHour

    records = UsageRecord.objects.order_by("source_key").values_list(
        "source_key", "started", "ended", "seen_until", "gpus", "state"
    )
    busy = UtilisationHour.objects.order_by("record__source_key", "hour").values_list(
        "record__source_key", "hour", "busy", "covered"
    )
    digest = hashlib.sha256()
    counts = []
    for rows in (records, busy):
        counts.append(0)
        for row in rows.iterator():
            counts[-1] += 1
            digest.update(repr(row).encode())
    return counts[0], counts[1], digest.hexdigest()


def _queries(url: str, windows: Sequence[tuple[int, int]]) -> list[tuple[str, bytes]]:
    """What the connector asks for these windows: paths with their forms."""
    from clusters.connectors.http import Answer, Endpoint, Http
    from clusters.connectors.prometheus import PrometheusConnector, PrometheusLogin, client

    queries: list[tuple[str, bytes]] = []

    class Noting(Http):
        def call(self, method: str, path: str, **more: Any) -> Answer:
            queries.append((path, more["content"]))
            return super().call(method, path, **more)

    endpoint = Endpoint(base_url=url)
    with mock.patch.object(client, "Http", Noting):
        for since, until in windows:
            source = PrometheusConnector(endpoint, login=PrometheusLogin(), clock=lambda: int(time.time()))
            for _ in source.usage(since=since, until=until, open_keys=()):
                pass
    return queries


def _ask(url: str, queries: Sequence[tuple[str, bytes]]) -> None:
    """One after the other, and drop what comes."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as client:
        for path, form in queries:
            with client.stream("POST", path, content=form) as answer:
                answer.raise_for_status()
                for _ in answer.iter_raw():
                    pass
