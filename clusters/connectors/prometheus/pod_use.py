"""What pods used of CPU and memory beyond what they requested: sums of declared meters by pod and hour of UTC.

A run costs what its pod requests. Where an hour shall cost the larger of request and use (OpenCost's specification,
"Workload Costs"), the rest is a sum of that hour beside the run, which stays as it is: its CPU-seconds are what the
counters grew by, less the request for all seconds that the pod held its node. What nobody measured is request alone.

By cAdvisor's published definitions (docs/storage/prometheus.md): `container_cpu_usage_seconds_total`, "Cumulative cpu
time consumed", and `container_memory_working_set_bytes`, "Current working set". Their labels are the kubelet's
(pkg/kubelet/server/server.go, `containerPrometheusLabelsFunc`): namespace, pod and container, no uid, and `id` and
`name` of the cgroup. A pod's own cgroup has no container, and the one of its sandbox is called POD in some runtimes:
both are left out, since a pod's cgroup holds what its containers use. *Not yet seen from a live source.*
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast

from msgspec import structs

from clusters.connectors import sums
from clusters.connectors.base import Row, UsageFact
from clusters.connectors.prometheus.allocations import spelled
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, MINUTE
from clusters.connectors.prometheus.facts import count_of, naming
from clusters.connectors.prometheus.held_pods import Held, Used, pods_of
from clusters.connectors.prometheus.options import LabelNames, UseOptions
from clusters.connectors.prometheus.pod_requests import LARGEST
from clusters.connectors.prometheus.queries import Queries, alternatives, parts, span
from clusters.connectors.prometheus.responses import Sample, Series
from clusters.connectors.prometheus.runs import SHORT
from clusters.connectors.prometheus.samples import HALF, ByParts
from clusters.connectors.sums import MeterUnit, MeterUnits, StoredSums

if TYPE_CHECKING:
    from clusters.connectors.base import Rejection

CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"
CORE_HOUR = HOUR * 10**6  # core-microseconds
GIB_HOUR = (1 << 30) * HOUR  # byte-seconds
LABELS = LabelNames(namespace="namespace", pod="pod", container="container")
"""Of cAdvisor, whatever those of kube-state-metrics are called here: its job has no pods of its own to mistake."""
PREFIX = "use/"
LOOK_BACK = (
    300  # seconds before an instant in which Prometheus takes a series' last sample for its value there
)


@dataclass(slots=True)
class UseHour:
    """What pods used in the hour that begins there, by uid; its rows are made as they are taken.

    `within`: CPU or memory and uid of pods that were measured and have no row, once all rows are made.
    """

    hour: int
    used: Mapping[str, Used]
    within: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Kind:
    """What is counted beyond requests: `cpu` or `memory`, by which meter, and how much makes one unit of it."""

    what: str
    meter: str
    per_unit: int
    unit: MeterUnit | None  # None: no meter of that name is declared
    share: tuple[int, int]  # what one of the meter's parts is of its unit


def pod_name(series: Series, labels: LabelNames = LABELS) -> str:
    """The pod's namespace and name."""
    return f"{spelled(series, 'namespace', labels)}/{spelled(series, 'pod', labels)}"


class PodUse:
    """Reads whole hours of UTC. After `rows`, `notes` say of which pods nothing was measured."""

    def __init__(
        self,
        client: PrometheusClient,
        queries: Queries,
        options: UseOptions,
        meters: MeterUnits,
        stored: StoredSums = sums.none_stored,
    ) -> None:
        self.client = client
        self.options = options
        self.meters = meters
        self.stored = stored
        self.cpu = self._kind("cpu", options.cpu, CORE_HOUR)
        self.memory = self._kind("memory", options.memory, GIB_HOUR)
        self.matcher = queries.options.matcher if options.matcher is None else options.matcher
        self.by_pod = LABELS.listed("namespace", "pod")
        self.by_name = LABELS.listed("namespace", "pod", "container")
        self.unmeasured: dict[str, str] = {}
        self.measured: set[str] = set()

    def rows(self, facts: Iterable[UsageFact], hours: range) -> Iterator[Row]:
        """Sums of those pods that used more than they requested, in order of hours. Raises `ConnectorError`.

        Also of those that came within a minute of it, as 0: samples that came late may have brought them there. What
        an earlier reading had is revised to 0 where its pod was measured and has not used more, or was not there.
        """
        pods = pods_of(facts)
        by_uid = {pod.uid: pod for same_name in pods.values() for pod in same_name}
        for one in chain.from_iterable(ByParts(self.client, hours, partial(self._read, pods))):
            yield from self._rows(one, pods)  # of one hour at a time, as many as its pods
            for fact in self.stored(PREFIX, one.hour, one.hour + HOUR):
                _, what, uid, _ = fact.source_key.split("/")
                pod = by_uid.get(uid)
                if pod is not None and ((what, uid) in one.within or not pod.within(one.hour)):
                    yield structs.replace(fact, quantity=0)

    def notes(self) -> list[str]:
        """A sentence for the operator."""
        silent = [name for uid, name in self.unmeasured.items() if uid not in self.measured]
        who = f"{count_of(len(silent), 'pod')}, which cost what they request and no use: {naming(silent)}"
        return [f"cAdvisor tells nothing of {who}."] if silent else []

    def selector(self, metric: str, pods: Sequence[str] = ()) -> str:
        """Series of containers: neither of whole pods nor of their sandboxes."""
        names = f'pod=~"{alternatives(pods)}"' if pods else ""
        container = 'container!~"|POD"'
        return f"{metric}{{{','.join(filter(None, (container, names, self.matcher)))}}}"

    def growth(self) -> str:
        """Core-seconds of each pod in the hour before.

        Of a container that stood at both ends: from its last sample of the hour before to that of this one. Of others
        from their first sample to their last. Each is there once, whoever else scrapes it.
        """
        cpu = self.selector(CPU)
        hour = f"{cpu}[{span(HOUR)}]"
        grown = f"({cpu} - {cpu} offset 1h) or (max_over_time({hour}) - min_over_time({hour}))"
        return f"sum by ({self.by_pod}) (max by ({self.by_name},id,name,cpu) ({grown}))"

    def _spans(self) -> str:
        cpu = self.selector(CPU)
        return f"max by ({self.by_pod}) (timestamp({cpu}) - timestamp({cpu} offset 1h))"

    def _resets(self) -> str:
        """Pods with a counter that fell: only its single samples tell what it grew by."""
        return f"count by ({self.by_pod}) (resets({self.selector(CPU)}[{span(HOUR + LOOK_BACK)}]) > 0)"

    def _restarts(self) -> str:
        """Pods with a container that there were two of, which may be in one minute."""
        seen = f"count_over_time({self.selector(MEMORY)}[{span(HOUR)}])"
        each = f"max by ({self.by_name},id,name) ({seen})"
        return f"count by ({self.by_pod}) (count by ({self.by_name}) ({each}) > 1)"

    def bytes_now(self, pods: Sequence[str] = ()) -> str:
        """Of each pod in the minute before. Of a container that was started anew in it, the larger."""
        now = f"last_over_time({self.selector(MEMORY, pods)}[{span(MINUTE)}])"
        return f"sum by ({self.by_pod}) (max by ({self.by_name}) ({now}))"

    def _queries(self) -> dict[str, str]:
        """What hours tell, each of all pods at once."""
        queries: dict[str, str] = {}
        if self.options.cpu:
            queries |= {"growth": self.growth(), "span": self._spans(), "reset": self._resets()}
        if self.options.memory:
            # Each series by itself, then together: to add pods up in each minute takes Prometheus ten times as long.
            minutes = f"(last_over_time({self.selector(MEMORY)}[{span(MINUTE)}]))[{span(HOUR)}:1m]"
            queries |= {
                "bytes": f"sum by ({self.by_pod}) (max by ({self.by_name},id,name) (sum_over_time({minutes})))",
                "minutes": f"max by ({self.by_pod}) (count_over_time({minutes}))",
                "restart": self._restarts(),
            }
        return queries

    def _read(self, pods: Mapping[str, Sequence[Held]], hours: range) -> list[UseHour]:
        ends = {"start": hours.start + HOUR, "end": hours.stop, "step": HOUR}
        queries = self._queries()
        answers = self.client.together(
            partial(self.client.range, query, **ends) for query in queries.values()
        )
        tallies = {what: self._by_pod(series) for what, series in zip(queries, answers, strict=True)}
        results: list[UseHour] = []
        for hour in hours:
            used, cpu, memory = _used(pods, hour, tallies)
            self._cut_cpu(hour, cpu, used)
            self._cut_memory(hour, memory, used)
            results.append(UseHour(hour, used))
        return results

    def _rows(self, of: UseHour, pods: Mapping[str, Sequence[Held]]) -> list[Row]:
        hour = of.hour
        stamp = f"{datetime.fromtimestamp(hour, UTC):%Y-%m-%dT%HZ}"
        rows: list[Row] = []
        for name, those in pods.items():
            for pod in those:
                held = pod.within(hour)
                if not held:
                    continue
                used = of.used.get(pod.uid)
                if used is not None and (used.core_micros is not None or used.byte_minutes is not None):
                    self.measured.add(pod.uid)
                    self._add_beyond(rows, of, pod, used, held, stamp)
                elif held >= SHORT:
                    self.unmeasured[pod.uid] = name
        return rows

    def _kind(self, what: str, meter: str, per_unit: int) -> Kind:
        unit = self.meters.get(meter)
        return Kind(what, meter, per_unit, unit, (1, unit.parts if unit else 1))

    def _by_pod(self, series: Iterable[Series]) -> dict[tuple[int, str], Decimal]:
        """By the begin of an hour and a pod's namespace and name. What can be no amount is none."""
        values: dict[tuple[int, str], Decimal] = {}
        for one in series:
            name = pod_name(one)
            for at, value in one.values:
                if value.is_finite() and 0 <= value <= LARGEST:
                    key = int(at) - HOUR, name
                    values[key] = max(value, values.get(key, value))
        return values

    def _cut_cpu(self, hour: int, cut: Mapping[str, Sequence[Held]], used: dict[str, Used]) -> None:
        """From single samples of the hour: of pods that had one name in it, and where counters fell."""
        if not self.options.cpu:
            return
        best: dict[tuple[str, ...], dict[str, int]] = {}
        for some in parts(_pod_names(cut)):
            for one in self.client.instant(f"{self.selector(CPU, some)}[{span(HOUR)}]", hour + HOUR):
                name = pod_name(one)
                if name in cut:
                    grown = _grown(one.values, cut[name])
                    own = (
                        spelled(one, "container", LABELS),
                        *(one.metric.get(of, "") for of in ("id", "name", "cpu")),
                    )
                    container = (name, *own)
                    if sum(grown.values()) >= sum(best.get(container, {}).values()):
                        best[container] = grown
        for grown in best.values():
            for uid, micros in grown.items():
                one_used = used.setdefault(uid, Used())
                one_used.core_micros = (one_used.core_micros or 0) + micros

    def _cut_memory(self, hour: int, cut: Mapping[str, Sequence[Held]], used: dict[str, Used]) -> None:
        """From single minutes: each is of the pod that had begun last."""
        if not self.options.memory:
            return
        for some in parts(_pod_names(cut)):
            series = self.client.range(
                self.bytes_now(some), start=hour + MINUTE, end=hour + HOUR, step=MINUTE
            )
            for one in series:
                for at, value in one.values:
                    uid = _last(cut.get(pod_name(one), ()), at)
                    if uid and value.is_finite() and 0 <= value <= LARGEST:
                        one_used = used.setdefault(uid, Used())
                        one_used.byte_minutes = (one_used.byte_minutes or 0) + int(value)
                        one_used.minutes += 1

    def _add_beyond(self, rows: list[Row], of: UseHour, pod: Held, used: Used, held: int, stamp: str) -> None:
        if self.cpu.meter and used.core_micros is not None:
            beyond, minute = pod.cpu_beyond(used, held)
            if beyond + minute > 0:
                rows.append(self._row(self.cpu, pod, of.hour, beyond, stamp))
            else:
                of.within.add(("cpu", pod.uid))
        if self.memory.meter and used.byte_minutes is not None:
            beyond, minute = pod.memory_beyond(used, held)
            if beyond + minute > 0:
                rows.append(self._row(self.memory, pod, of.hour, beyond, stamp))
            else:
                of.within.add(("memory", pod.uid))

    def _row(self, kind: Kind, pod: Held, hour: int, beyond: int, stamp: str) -> Row:
        """Rounded down to the meter's decimals. Its key is the same whatever the account of the pod.

        A day of a large cluster has a hundred thousand: what is right is made at once, its fields by their order.
        """
        unit, fact = kind.unit, pod.fact
        key = f"{PREFIX}{kind.what}/{pod.uid}/{stamp}"
        decimals = unit.decimals if unit else 0
        number = beyond * 10**decimals // kind.per_unit if beyond > 0 else 0
        started = max(hour, pod.started)
        ended = min(hour + HOUR, pod.until)
        if unit is not None and number <= sums.MOST_PARTS:
            return UsageFact(
                key, fact.account, fact.user, fact.job_id, "", fact.queue, fact.qos, fact.priority_class,
                0, "", "", kind.share, 0, 0, 0, "", "", None, None, None, started, ended,
                meter=unit.name, quantity=number,
            )  # fmt: skip
        quantity = Decimal(number).scaleb(-decimals)
        one = sums.Sum(
            meter=kind.meter,
            account=fact.account,
            user=fact.user,
            quantity=f"{quantity:f}",
            start=datetime.fromtimestamp(started, UTC),
            end=datetime.fromtimestamp(ended, UTC),
        )
        refusal = sums.fact_of(  # without a declared meter, or of too much
            one,
            event_id=fact.job_id,
            key=key,
            raw=json.dumps(structs.asdict(one), default=str, sort_keys=True),
            meters=self.meters,
        )
        return cast("Rejection", refusal).row


Cut = dict[str, Sequence[Held]]


def _used(
    pods: Mapping[str, Sequence[Held]], hour: int, tallies: Mapping[str, Mapping[tuple[int, str], Decimal]]
) -> tuple[dict[str, Used], Cut, Cut]:
    """By uid, what hours alone tell; then the names of which single samples are needed, for CPU and for memory."""
    used: dict[str, Used] = {}
    cpu: Cut = {}
    memory: Cut = {}
    none: Mapping[tuple[int, str], Decimal] = {}
    for name, those in pods.items():
        at = hour, name
        live = [pod for pod in those if pod.within(hour)]
        if not live:
            continue
        one = Used()
        if len(live) > 1 or at in tallies.get("reset", none):
            cpu[name] = live
        elif (grown := tallies.get("growth", none).get(at)) is not None:
            one.core_micros = int(grown * 10**6 + HALF)
            one.span = int(tallies["span"].get(at, Decimal(0)) * 1000 + HALF)
        if len(live) > 1 or at in tallies.get("restart", none):
            memory[name] = live
        elif (total := tallies.get("bytes", none).get(at)) is not None:
            one.byte_minutes, one.minutes = int(total), int(tallies["minutes"].get(at, Decimal(0)))
        if len(live) == 1:
            used[live[0].uid] = one
    return used, cpu, memory


def _grown(samples: Sequence[Sample], live: Sequence[Held]) -> dict[str, int]:
    """Core-microseconds by uid from sample to sample, where both are of one pod."""
    grown: dict[str, int] = {}
    before: tuple[str, Decimal] | None = None
    for at, value in samples:
        uid = _last(live, at)
        if not value.is_finite() or not 0 <= value <= LARGEST:
            continue
        if before is not None and before[0] == uid:
            more = value - before[1] if value >= before[1] else value
            grown[uid] = grown.get(uid, 0) + int(more * 10**6 + HALF)
        before = uid, value
    grown.pop("", None)
    return grown


def _last(live: Sequence[Held], at: Decimal) -> str:
    """The uid of the pod that had begun last; "" before the first."""
    return next((pod.uid for pod in reversed(live) if pod.started <= at), "")


def _pod_names(cut: Iterable[str]) -> list[str]:
    return sorted({name.partition("/")[2] for name in cut})
