"""A day of 5,000 pods in a real Prometheus: pulled at once and hour by hour, beside the same queries alone."""

from __future__ import annotations

import hashlib
import os
import random
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
GPUS, REQUESTS, USE = WHOLE = ("kubegpus", "kuberequests", "kubeuse")
"""The same day of the same pods: their GPUs alone; with what they request and claim; and with what they use, too."""
GIB = 1 << 30
METERS = ("volumes", "cpu-beyond", "memory-beyond")
OPTIONS: dict[str, dict[str, Any]] = {
    GPUS: {"cpu_memory": "off"},
    REQUESTS: {"volumes": "volumes"},
    USE: {"volumes": "volumes", "use": {"cpu": "cpu-beyond", "memory": "memory-beyond"}},
}
TITLES = {
    "kubehours": "hour by hour",
    GPUS: "a day at once, GPUs alone",
    REQUESTS: "a day at once with requests and volumes",
    USE: "a day at once with volumes and use",
}
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
    if not names & {*NAMES, *WHOLE}:
        return
    pods = scale.of(5_000)
    try:
        with _prometheus(pods, whole=bool(names & {*WHOLE})) as (url, base):
            day, hours = [(base, base + DAY)], [(at, at + HOUR) for at in range(base, base + DAY, HOUR)]
            outcomes = {}
            kinds: list[tuple[str, list[tuple[int, int]], dict[str, Any]]] = [
                (NAMES[0], day, {}),
                (NAMES[1], hours, {}),
                *((name, day, OPTIONS[name]) for name in WHOLE),
            ]
            for name, windows, options in kinds:
                if name not in names:
                    continue
                queries = _queries(url, windows, options)
                ours, least = [], []
                for _ in range(scale.rounds):
                    _connect(url, base, options)
                    ours.append(pulling.pulled(postmaster, PULL.format(windows=windows)))
                    outcomes[name] = _rows()
                    least.append(measure(partial(_ask, url, queries), postmaster))
                yield _result(name, pods, len(queries), middle(ours), middle(least))
            if set(NAMES) <= outcomes.keys() and outcomes["kube"] != outcomes["kubehours"]:
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
    how = TITLES.get(name, "a day at once")
    return Result(
        name, f"Prometheus → usage, {how}, {queries} queries", pods, "pods", ours, least,
        Goal(), by_wall=True, memory=(ours.peak, MOST), within=None if name == "kubehours" else WITHIN,
    )  # fmt: skip


@contextmanager
def _prometheus(pods: int, *, whole: bool) -> Iterator[tuple[str, int]]:
    """Its address and the day's beginning. Half of the pods run all day, and the device of each is told of.

    With `whole`, so is what each requests and uses of CPU and memory, and a claim of one in ten. Those that run all day
    use more than they request: of four hours of a pod, three.
    """
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
            history = _history(generator, pods)
            if whole:
                _add_use(generator, history)
            generator.push(url, history.out.runs())
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


def _add_use(generator: Any, history: Any) -> None:
    """Of each pod 2 cores and 4 GiB, by cAdvisor; requests of half of that or twice as much; of one in ten a volume."""
    labels = {"job": "kubelet", "instance": "n-0:10250", "metrics_path": "/metrics/cadvisor"}
    begin = generator.BASE - HOUR
    cadvisor = generator.Target(random.Random("cadvisor"), begin, history.end, labels)
    ksm = history.ksm[0]
    for number, pod in enumerate(history.pods):
        since, until = max(pod["scheduled"], begin), pod["ended"] or history.end
        named = {"namespace": pod["namespace"], "pod": pod["pod"], "container": "main"}
        of_pod = {**named, "uid": pod["uid"], "node": "n-0"}
        for resource, unit, value in (("cpu", "core", 1.0), ("memory", "byte", 2.0 * GIB)):
            asked = {**of_pod, "resource": resource, "unit": unit}
            size = value * (1 if number % 2 else 4)
            history.out.add(ksm, "kube_pod_container_resource_requests", asked, [(since, until, size)])
        cgroup = {**named, "id": f"/kubepods.slice/{pod['uid']}/main", "name": f"main-{number}"}
        counter = partial(_cores, since)
        history.out.add(
            cadvisor,
            "container_cpu_usage_seconds_total",
            {**cgroup, "cpu": "total"},
            [(since, until, counter)],
        )
        history.out.add(cadvisor, "container_memory_working_set_bytes", cgroup, [(since, until, 4.0 * GIB)])
        if number % 10:
            continue
        claim = {"namespace": pod["namespace"], "persistentvolumeclaim": f"home-{number}"}
        prefix = "kube_persistentvolumeclaim"
        history.out.add(ksm, f"{prefix}_resource_requests_storage_bytes", claim, [(since, until, 10.0 * GIB)])
        history.out.add(ksm, f"{prefix}_status_phase", {**claim, "phase": "Bound"}, [(since, until, 1.0)])
        history.out.add(ksm, f"{prefix}_info", {**claim, "storageclass": "fast"}, [(since, until, 1.0)])


def _cores(since: int, at: int) -> float:
    """The counter of two cores, at milliseconds."""
    return 2 * (at / 1000 - since)


def _connect(url: str, base: int, options: dict[str, Any]) -> None:
    from clusters.meters import declare_meter
    from clusters.models import Cluster, Connection
    from tests.builders import a_plan, a_tenant

    instance.copy(instance.EMPTY, RUN)
    cluster = Cluster.objects.create(name="kube", kind=Cluster.Kind.PROMETHEUS)
    a_tenant("acme", plan=a_plan(), accounts=[(cluster, f"ns-{number}") for number in range(NAMESPACES)])
    for name in METERS:
        declare_meter(name=name, title=name, unit="units", decimals=6)
    Connection.objects.create(
        cluster=cluster, base_url=url, first_usage_from=datetime.fromtimestamp(base, UTC), options=options
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


def _queries(
    url: str, windows: Sequence[tuple[int, int]], options: dict[str, Any]
) -> list[tuple[str, bytes]]:
    """What the connector asks for these windows: paths with their forms."""
    from clusters.connectors.http import Answer, Endpoint, Http
    from clusters.connectors.prometheus import PrometheusConnector, PrometheusLogin, client
    from clusters.connectors.prometheus.option_parsing import options_from
    from clusters.connectors.sums import MeterUnit

    queries: list[tuple[str, bytes]] = []

    class Noting(Http):
        def call(self, method: str, path: str, **more: Any) -> Answer:
            queries.append((path, more["content"]))
            return super().call(method, path, **more)

    endpoint = Endpoint(base_url=url)
    with mock.patch.object(client, "Http", Noting):
        for since, until in windows:
            source = PrometheusConnector(
                endpoint,
                login=PrometheusLogin(),
                options=options_from(options),
                clock=lambda: int(time.time()),
                meters={name: MeterUnit(name, 6, 10**6, ()) for name in METERS},
            )
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
