"""XID errors of GPUs, as DCGM's exporter tells them: which GPU, which XID, when, and whose devices it was.

`DCGM_FI_DEV_XID_ERRORS` is "Value of the last XID error encountered." in the list of default counters of dcgm-exporter
3.3: a gauge that keeps the number of the last error until the driver is loaded again, with `err_code` and `err_msg` as
labels of later versions, so that each number is a series of its own. An error is a sample that differs from the one
before it. The same number again does not show, and neither does when an error happened that the first sample tells.
Not yet seen from a live source: tests push it into a real Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise

from clusters.connectors.base import Connected
from clusters.connectors.clocks import Clocks
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.connector import JOB
from clusters.connectors.prometheus.coverage import HOUR, whole_hours
from clusters.connectors.prometheus.login import PrometheusLogin
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.queries import alternatives, span
from clusters.connectors.prometheus.responses import Labels, first
from clusters.connectors.prometheus.runs import SPELLINGS
from clusters.connectors.prometheus.samples import AT_ONCE, HOSTS, OBSERVER, UUIDS
from clusters.connectors.prometheus.usage_fetch import SETTLE

XID = "DCGM_FI_DEV_XID_ERRORS"
MOST_XID = 999
"""NVIDIA's catalog ends below 200. What is above is no sample: blanks are 2147483632 or 9223372036854775794."""
MODELS = ("modelName", "modelname")
SAME = 600
"""Seconds within which two observers of one GPU that tell of one XID tell of one error."""


@dataclass(frozen=True, slots=True)
class GpuError:
    """An XID of one GPU. Moments are epoch seconds: it happened after `clean_until` and was there at `at`."""

    uuid: str
    gpu_slice: str  # of MIG, its GPU_I_ID; "": the whole GPU
    xid: int
    at: int
    clean_until: int
    node: str
    gpu_model: str
    jobs: tuple[str, ...]  # who held it, around: Slurm's number, or "namespace/pod/container"


Gpu = tuple[str, str]
Observed = tuple[Decimal, int, Labels]
"""Epoch second, XID, and the labels beside it."""


@dataclass(slots=True)
class GpuErrors(Connected):
    """Reads errors over one connection. After `read`, `complete_through` is the epoch second up to which they were.

    `undated` counts GPUs whose first sample told of an error: when it happened is not known.
    """

    client: PrometheusClient
    matcher: str
    complete_through: int | None = None
    clocks: Clocks | None = None
    undated: set[Gpu] = field(default_factory=set)

    def read(self, *, since: int, until: int) -> Iterator[GpuError]:
        """Those in each hour of UTC that ends in (since, until], hour by hour. Raises `ConnectorError`.

        The last ten minutes of Prometheus's own time are left for a later reading.
        """
        self.complete_through, self.undated = None, set()
        self.clocks = self.client.clocks()
        hours = whole_hours(since, min(until, self.clocks.theirs - SETTLE))
        if not hours:
            return
        for hour, uuids in sorted(self._with_errors(hours).items()):
            yield from self._of_hour(hour, sorted(uuids))
        self.complete_through = hours.stop

    def close(self) -> None:
        self.client.close()

    def _selector(self, *matchers: str) -> str:
        return f"{XID}{{{','.join(filter(None, (*matchers, self.matcher)))}}}"

    def _with_errors(self, hours: range) -> Mapping[int, set[str]]:
        """By hour the GPUs that told of any XID: those to look at sample by sample. One query."""
        query = f"max by ({','.join(UUIDS)}) (max_over_time({self._selector()}[{span(HOUR)}])) > 0"
        by_hour: dict[int, set[str]] = {}
        for one in self.client.range(query, start=hours.start + HOUR, end=hours.stop, step=HOUR):
            if uuid := first(one.metric, UUIDS):
                for at, _ in one.values:
                    by_hour.setdefault(int(at) - HOUR, set()).add(uuid)
        return by_hour

    def _of_hour(self, hour: int, uuids: Sequence[str]) -> Iterator[GpuError]:
        """With the hour before, whose last sample says what was there."""
        by_gpu: dict[Gpu, dict[tuple[str, ...], list[Observed]]] = {}
        for begin in range(0, len(uuids), AT_ONCE):
            some = alternatives(uuids[begin : begin + AT_ONCE])
            for name in UUIDS:
                matcher = f'{name}=~"{some}"'
                query = f"{self._selector(matcher)}[{span(2 * HOUR)}]"
                for one in self.client.instant(query, hour + HOUR):
                    gpu = first(one.metric, UUIDS), one.metric.get("GPU_I_ID", "")
                    observer = tuple(one.metric.get(label, "") for label in OBSERVER)
                    samples = by_gpu.setdefault(gpu, {}).setdefault(observer, [])
                    samples += [(at, int(v), one.metric) for at, v in one.values if _is_xid(v)]
        for gpu, observers in sorted(by_gpu.items()):
            yield from self._errors(gpu, observers.values(), hour)

    def _errors(self, gpu: Gpu, observers: Iterable[list[Observed]], hour: int) -> Iterator[GpuError]:
        errors: list[GpuError] = []
        for samples in observers:
            samples.sort(key=lambda sample: sample[0])
            if samples and samples[0][1] and hour <= samples[0][0] < hour + HOUR:
                self.undated.add(gpu)
            errors += [
                _error(gpu, before, sample)
                for before, sample in pairwise(samples)
                if sample[1] not in {0, before[1]} and hour <= sample[0] < hour + HOUR
            ]
        last: dict[int, int] = {}
        for error in sorted(errors, key=lambda error: error.at):
            if error.at - last.get(error.xid, -SAME) >= SAME:
                last[error.xid] = error.at
                yield error


def connect(
    endpoint: Endpoint, *, login: PrometheusLogin, options: PrometheusOptions, clock: Callable[[], int]
) -> GpuErrors:
    """What reads them; it calls nobody yet. `clock` gives epoch seconds."""
    client = PrometheusClient(endpoint, login, clock=clock, parameters=options.parameters)
    return GpuErrors(client, options.busy_matcher)


def _is_xid(value: Decimal) -> bool:
    return value.is_finite() and 0 <= value <= MOST_XID


def _error(gpu: Gpu, before: Observed, sample: Observed) -> GpuError:
    """A job that died of it is not on the device any more when it shows: the sample before has it."""
    at, xid, labels = sample
    return GpuError(
        uuid=gpu[0],
        gpu_slice=gpu[1],
        xid=xid,
        at=int(at),
        clean_until=int(before[0]),
        node=first(labels, HOSTS),
        gpu_model=first(labels, MODELS),
        jobs=tuple(dict.fromkeys([*_holders(before[2]), *_holders(labels)])),
    )


def _holders(labels: Labels) -> Iterator[str]:
    """Under all spellings: the exporter's own pod, which may stand under one of them, holds no device."""
    if job := labels.get(JOB):
        yield job
        return
    for namespace, pod, container in SPELLINGS:
        if labels.get(pod):
            yield "/".join(filter(None, (labels.get(namespace, ""), labels[pod], labels.get(container, ""))))
