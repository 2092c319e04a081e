"""What pods use beyond their requests: cAdvisor's counters and gauges in a real Prometheus, the rest computed by hand.

Names and labels are those that cAdvisor publishes (docs/storage/prometheus.md) and that the kubelet gives them
(pkg/kubelet/server/server.go): namespace, pod, container, id, image, name, and `cpu="total"`. Not yet seen from a live
source. Samples are 30 seconds apart, so that an hour in which a container begins or ends has 3,570 s between its first
and its last, and one between two others all 3,600.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace

from billing.rating import pulls
from clusters import meters as declared
from clusters import sources
from clusters.connectors.base import BadRow, ConnectorError, Row, UsageFact
from clusters.connectors.findings import Level
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import (
    PrometheusConnector,
    PrometheusLogin,
    PrometheusOptions,
    Scope,
    Utilisation,
)
from clusters.connectors.prometheus.check_metrics import CheckSession
from clusters.connectors.prometheus.check_use import use
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.prometheus.options import CpuMemory, UseOptions
from clusters.connectors.prometheus.queries import Queries
from clusters.connectors.sums import MeterUnit
from clusters.models import Cluster, ClusterKind, UsageRecord, UsageRevision
from tests.builders import LONG_AGO, a_cluster, a_person, a_plan, a_tenant
from tests.contracts.prometheus_reading import HOUR, connector
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab
from tests.scenarios.real import run
from tests.schedulers import a_connection
from tests.stories import closed, prove
from tests.sums import lines_of, sums_of
from tests.web.house import page
from tests.web.test_overview import words

GIB = 1 << 30
CPU, MEMORY = "cpu-use", "memory-use"
METERS = {name: MeterUnit(name, 6, 10**6, ()) for name in (CPU, MEMORY)}
OPTIONS: dict[str, Any] = {
    "matcher": 'cluster="use"',
    "utilisation": Utilisation(scope=Scope.OFF),
    "use": UseOptions(cpu=CPU, memory=MEMORY),
}
story = Stories()


class Kubelet(World):
    """A world of three hours, the last of which lets the two before settle, with cAdvisor of the node n-1."""

    LENGTH = 3 * HOUR

    def __init__(self, worlds: Worlds, name: str) -> None:
        super().__init__(worlds, name, (), True)
        worlds.all[name] = self
        labels = {
            "job": "kubelet",
            "cluster": name,
            "instance": "n-1:10250",
            "metrics_path": "/metrics/cadvisor",
        }
        self.cadvisor = worlds.lab.Target(random.Random("cadvisor"), self.begin, self.end, labels)
        self.offset = Decimal(self.cadvisor.ts[0] - self.begin * 1000) / 1000  # seconds of the first sample

    def asks(self, pod: str, cores: float, size: int, *, uid: str = "", **times: Any) -> None:
        """A pod with a device that requests so much, in bytes."""
        self.pod(pod, uid=uid, **times)
        identity = {
            "namespace": "team",
            "pod": pod,
            "uid": self.uid(uid or pod),
            "container": "main",
            "node": "n-1",
        }
        for resource, unit, value in (("cpu", "core", cores), ("memory", "byte", size)):
            kind = {"resource": resource, "unit": unit}
            until = times.get("until")
            self.series(
                "kube_pod_container_resource_requests",
                {**identity, **kind},
                [(times.get("since", 0), until, value)],
            )

    def uses(
        self,
        pod: str,
        cores: float,
        size: int,
        *times: tuple[int, int | None],
        container: str = "main",
        made: str = "1",
        since: int = 0,
        falls: int | None = None,
        **labels: str,
    ) -> None:
        """What cAdvisor tells of one container: `cores` since `since`, `falls` being when its counter began anew."""
        identity = {"namespace": "team", "pod": pod, "container": container, "image": "i", **labels}
        if made:
            identity |= {"id": f"/kubepods.slice/{pod}/{container}-{made}", "name": f"{container}-{made}"}
        counter = self._counter(cores, since, falls)
        for begin, end in times or ((0, None),):
            self._out.add(
                self.cadvisor,
                "container_cpu_usage_seconds_total",
                {**identity, "cpu": "total"},
                self._segments([(begin, end, counter)]),
            )
            self._out.add(
                self.cadvisor,
                "container_memory_working_set_bytes",
                identity,
                self._segments([(begin, end, float(size))]),
            )

    def _counter(self, cores: float, since: int, falls: int | None) -> Callable[[int], float]:
        def value(at: int) -> float:
            second = at / 1000 - self.begin
            return cores * (second - (falls if falls is not None and second >= falls else since))

        return value


@story
def _pods(worlds: Worlds) -> None:
    world = Kubelet(worlds, "use")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    world.asks("steady", 2, 4 * GIB)
    world.uses("steady", 3, 6 * GIB)
    world.uses("steady", 3, 6 * GIB, prometheus_replica="b")  # the same container, scraped by another, too
    world.uses("steady", 3.1, 7 * GIB, container="", made="pod")  # its cgroup, which holds the container
    world.uses("steady", 0.1, GIB, container="POD", made="sandbox")
    world.asks("idle", 2, 4 * GIB)
    world.uses("idle", 0.5, GIB)
    world.asks("capped", 2, 4 * GIB)
    world.uses("capped", 2, 4 * GIB)
    world.asks("pair", 2, 4 * GIB)
    world.uses("pair", 1, 3 * GIB, container="main")
    world.uses("pair", 2, 3 * GIB, container="log")
    world.pod("greedy")  # it requests a device, and neither CPU nor memory
    world.uses("greedy", 1, GIB)
    world.asks("gap", 2, 4 * GIB)
    world.uses("gap", 3, 9 * GIB, (0, 600), (1800, None))
    world.asks("hole", 2, 4 * GIB)  # not scraped for ten minutes on both sides of the full hour
    world.uses("hole", 3, 6 * GIB, (0, 3000), (4200, None))
    world.asks("late", 2, 4 * GIB)  # nobody looked in the first hour: what it counted then is not known
    world.uses("late", 3, 6 * GIB, (3600, None), since=-(10**6))
    world.asks("crashed", 2, 4 * GIB)
    world.uses("crashed", 3, 6 * GIB, (0, 1200))
    world.uses("crashed", 3, 6 * GIB, (1200, None), made="2", since=1200)
    world.asks("loops", 2, 4 * GIB)  # started anew again and again: two of it have samples in one minute
    for number, begin in enumerate(range(0, 3 * HOUR, 90)):
        world.uses("loops", 2, 4 * GIB, (begin, begin + 90), made=f"{number}", since=begin)
    world.asks("fell", 2, 4 * GIB)  # the same, where id and name are relabelled away
    world.uses("fell", 3, 6 * GIB, made="", falls=1200)
    over = [(0, 1500, "Running"), (1500, 1530, "Succeeded")]
    world.asks("again", 1, GIB, uid="again-1", until=1530, completed=1500, phases=over)
    world.uses("again", 2, 3 * GIB, (0, 1500), made="1")
    world.asks("again", 1, GIB, uid="again-2", since=1560)
    world.uses("again", 5, 4 * GIB, (1560, None), made="2", since=1560)
    world.asks("silent", 2, 4 * GIB)


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def read(
    worlds: Worlds,
    since: int = 0,
    until: int = 3 * HOUR,
    meters: Any = METERS,
    stored: Sequence[UsageFact] = (),
    **options: Any,
) -> list[Row]:
    """What one pull gives, of those seconds since the world began."""
    source = connector(worlds.url, meters=meters, stored=stored, **OPTIONS | options)
    rows = list(source.usage(since=worlds.begin + since, until=worlds.begin + until, open_keys=()))
    (note,) = source.reading.notes
    assert note.startswith("cAdvisor tells nothing of ")
    assert note.endswith("team/silent.")
    return rows


def sums(worlds: Worlds, rows: list[Row]) -> dict[str, tuple[str, ...]]:
    """By pod: core-hours of the first and the second hour, and GiB-hours likewise; "" where there is no sum."""
    facts = [row for row in rows if isinstance(row, UsageFact) and row.meter]
    amounts: dict[str, dict[tuple[str, int], str]] = {}
    for row in facts:
        uid = row.source_key.split("/")[2].removeprefix("use-")
        hour = (row.started or 0) - (row.started or 0) % HOUR - worlds.begin
        key = row.meter, hour
        assert key not in amounts.setdefault(uid, {})
        amounts[uid][key] = f"{Decimal(row.quantity or 0).scaleb(-6).normalize():f}"
    order = [(meter, hour) for meter in (CPU, MEMORY) for hour in (0, HOUR)]
    return {uid: tuple(by.get(key, "") for key in order) for uid, by in amounts.items()}


def computed(worlds: Worlds) -> dict[str, tuple[str, ...]]:
    """By hand: core-hours of two hours, then GiB-hours."""
    kubelet = worlds.all["use"]
    assert isinstance(kubelet, Kubelet)
    # Of the counter that fell at 1,200 s: 1,170 s before, what it had counted anew at its next sample, and 2,370 s.
    fell = int((3 * (1170 + kubelet.offset + 2370) - 7200) * 10**6 / 3600)
    return {
        "steady": ("0.975", "1", "2", "2"),  # (3 × 3570 − 2 × 3600) s, 3 − 2 cores; 6 − 4 GiB
        "capped": ("0", "0", "0", "0"),  # as much as it requested: never more
        "pair": ("0.975", "1", "2", "2"),  # its containers together
        "greedy": ("0.991666", "1", "1", "1"),  # 3570 of 3600 s
        "gap": ("0.975", "1", "2", "5"),  # its counter went on; 40 of 60 minutes of 9 GiB, less 60 of 4
        "hole": ("0.475", "0.475", "1", "1"),  # 3 × 2970 s, less 2 × 3600; 50 minutes of 6 GiB
        "late": ("", "0.975", "", "2"),
        "crashed": ("0.95", "1", "2", "2"),  # 3 × (1170 + 2370) s
        "loops": ("", "", "0", "0"),  # 2 × 60 of each 90 s; memory as requested, however often it was counted
        "fell": (f"{Decimal(fell).scaleb(-6).normalize():f}", "1", "2", "2"),
        "again-1": ("0.4", "", "0.833333", ""),  # 2 × 1470 − 1 × 1500 s; 3 − 1 GiB for 1,500 s
        "again-2": ("2.225", "4", "1.7", "3"),  # 5 × 2010 − 1 × 2040 s; 4 − 1 GiB for 2,040 s
    }


@pytest.mark.sample
def test_each_hour_costs_the_larger_of_request_and_use_and_what_nobody_measured_the_request(
    worlds: Worlds,
) -> None:
    rows = read(worlds)
    assert sums(worlds, rows) == computed(worlds)
    runs = {row.source_key: row for row in rows if isinstance(row, UsageFact) and not row.meter}
    assert runs["use-steady/main/nvidia_com_gpu"].cpu_milli == 2000  # the run stays what it requested
    assert len(runs) == 14


def test_hours_that_are_read_again_or_alone_are_the_same_sums(worlds: Worlds) -> None:
    at_once = {row.source_key: row for row in read(worlds) if isinstance(row, UsageFact) and row.meter}
    again: dict[str, UsageFact] = {}
    for since, until in ((0, 5000), (3000, 8000), (4000, 3 * HOUR)):
        for row in read(worlds, since, until):
            if isinstance(row, UsageFact) and row.meter:
                assert again.setdefault(row.source_key, row) == row
    assert again == at_once


def test_what_an_hour_had_is_revised_to_nothing_where_its_pod_was_measured_and_has_not_used_more(
    worlds: Worlds,
) -> None:
    facts = {row.source_key: row for row in read(worlds) if isinstance(row, UsageFact) and row.meter}
    begin = datetime.fromtimestamp(worlds.begin, UTC)
    hours = [f"{begin + timedelta(hours=number):%Y-%m-%dT%HZ}" for number in (0, 1)]

    def before(pod: str, hour: int, what: str = "memory") -> UsageFact:
        """As if more had been measured once."""
        like = facts[f"use/{what}/use-steady/{hours[hour]}"]
        return replace(like, source_key=f"use/{what}/use-{pod}/{hours[hour]}", quantity=7)

    now_within = [
        before("idle", 0),
        before("idle", 1, "cpu"),
        before("again-1", 1),
    ]  # the last was not there any more
    unproven = [before("silent", 0), before("late", 0, "cpu"), before("unknown", 0)]
    still = [replace(facts[f"use/cpu/use-steady/{hours[0]}"], quantity=7)]
    again = [
        row
        for row in read(worlds, stored=[*now_within, *unproven, *still])
        if isinstance(row, UsageFact) and row.meter
    ]
    zeros = [replace(one, quantity=0) for one in now_within]
    assert sorted(again, key=str) == sorted([*facts.values(), *zeros], key=str)


def test_a_sum_is_its_pods_whatever_its_account_is(worlds: Worlds) -> None:
    key = "use/memory/use-again-1/"
    (one,) = (row for row in read(worlds) if isinstance(row, UsageFact) and row.source_key.startswith(key))
    assert (one.account, one.job_id, one.started, one.ended) == (
        "team", "team/again", worlds.begin, worlds.begin + 1500,
    )  # fmt: skip
    assert {row.meter for row in read(worlds, use=UseOptions(cpu=CPU)) if isinstance(row, UsageFact)} == {
        "",
        CPU,
    }


def test_a_meter_that_is_not_declared_keeps_the_sums_aside(worlds: Worlds) -> None:
    bad = [row for row in read(worlds, meters={}) if isinstance(row, BadRow)]
    assert {row.code for row in bad} == {"meter-not-declared"}


def test_test_connection_counts_what_is_told(worlds: Worlds) -> None:
    now = worlds.begin + 2 * HOUR
    with PrometheusClient(Endpoint(base_url=worlds.url), PrometheusLogin(), clock=lambda: now) as client:
        session = CheckSession(client, Queries(PrometheusOptions(**OPTIONS)), now, {CPU: METERS[CPU]})
        session.now = now
        assert use(session, "Use")
    assert [(one.level, one.sentence) for one in session.findings] == [
        (Level.OK, "Of 13 pods that are read in the last hour, 12 tell the CPU that they use."),
        (Level.OK, f"They are sums of the meter {CPU}."),
        (Level.OK, "Of 13 pods that are read in the last hour, 12 tell the memory that they use."),
        (Level.FAIL, f"No meter is called {MEMORY}: the use of memory would be kept aside."),
    ]


def test_test_connection_says_where_cadvisor_is_missing(worlds: Worlds) -> None:
    now = worlds.begin + 2 * HOUR
    options = {**OPTIONS, "use": UseOptions(cpu=CPU, matcher='job="elsewhere"')}
    with PrometheusClient(Endpoint(base_url=worlds.url), PrometheusLogin(), clock=lambda: now) as client:
        session = CheckSession(client, Queries(PrometheusOptions(**options)), now, METERS)
        session.now = now
        assert use(session, "Use")
    assert session.findings[0].level == Level.WARN
    assert session.findings[0].sentence.endswith("0 tell the CPU that they use.")


def test_options_that_cannot_be_meant_are_refused() -> None:
    options = options_from({"use": {"cpu": CPU, "matcher": 'job="kubelet"'}})
    assert options.use == UseOptions(cpu=CPU, matcher='job="kubelet"')
    assert options.has_sums
    with pytest.raises(ConnectorError, match="has to name a declared meter"):
        options_from({"use": {}})
    with pytest.raises(ConnectorError, match="has no key 'disk'"):
        options_from({"use": {"disk": CPU}})
    with pytest.raises(ConnectorError, match="needs pods and cpu_memory"):
        PrometheusOptions(use=UseOptions(cpu=CPU), cpu_memory=CpuMemory.OFF)


@pytest.mark.django_db
def test_an_hour_that_is_pulled_again_is_billed_once_and_closes_in_its_own_unit(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = {CPU: ("CPU beyond requests", "core-hours"), MEMORY: ("Memory beyond requests", "GiB-hours")}
    for name, (title, unit) in units.items():
        declared.declare_meter(name=name, title=title, unit=unit, decimals=6)
    kube = a_cluster("kube", kind=ClusterKind.PROMETHEUS, complete_through="2027-01-01")
    a_connection(kube)
    prices: Any = [(meter, {}, price, LONG_AGO) for meter, price in ((CPU, "0.10"), (MEMORY, "0.01"))]
    team = a_tenant("team", plan=a_plan(prices=prices, charges=(CPU, MEMORY)), accounts=[(kube, "team")])
    begin = datetime.fromtimestamp(worlds.begin, UTC)

    def connect(*_: object, **__: object) -> PrometheusConnector:
        return connector(worlds.url, clock=lambda: int(time.time()), meters=declared.load_units(), **OPTIONS)

    for since, until in ((0, 70), (60, 170), (0, 170)):  # minutes
        done = pulls.pull(
            kube,
            since=begin + timedelta(minutes=since),
            until=begin + timedelta(minutes=until),
            moment=begin + timedelta(hours=4),
            connect=connect,
        )
        assert not done.error, done.error
    assert not UsageRevision.objects.exclude(meter="").exists()

    Cluster.objects.update(complete_through=begin + timedelta(minutes=170))
    monkeypatch.setattr(sources, "connect", connect)
    compared = run("prove", "--live", "--hours", "3")["source"]
    assert (compared["facts"], compared["differing"]) == (
        14 + UsageRecord.objects.exclude(meter="").count(),
        0,
    )
    Cluster.objects.update(complete_through=begin + timedelta(days=365))

    month = f"{begin:%Y-%m}"
    closed(month, team, on=f"{begin.year + 1}-01-03", accept="Nothing is read beyond.")
    hours = computed(worlds).values()
    cores = sum(Fraction(text or 0) for row in hours for text in row[:2])
    gib = sum(Fraction(text or 0) for row in hours for text in row[2:])
    assert lines_of(team, month) == [
        ("CPU beyond requests", cores, "core-hours", round(cores * 10)),
        ("Memory beyond requests", gib, "GiB-hours", round(gib)),
    ]
    prove()
    assert Fraction(sums_of(CPU)["billed"]) == cores
    assert Fraction(sums_of(MEMORY)["billed"]) == gib

    record = UsageRecord.objects.get(source_key="use-steady/main/nvidia_com_gpu").pk
    shown = words(page(a_person("ann@team.example", team), f"/t/team/jobs/{record}/"))
    assert "CPU beyond requests 1.975 core-hours so far" in shown
    assert "Memory beyond requests 4 GiB-hours so far" in shown
