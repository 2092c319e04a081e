"""Errors of GPUs, as DCGM's exporter tells them: which GPU, what failed, when, and whose devices it was.

All by the list of counters of dcgm-exporter 3.3. `DCGM_FI_DEV_XID_ERRORS` is "Value of the last XID error
encountered.": a gauge that keeps the number of the last error until the driver is loaded again, with `err_code` and
`err_msg` as labels of later versions, so that each number is a series of its own. An error is a sample that differs
from the one before it. The same number again does not show, and neither does when an error happened that the first
sample tells. The counters of the memory show it: an error is a sample above the one before. They begin again with the
driver (double-bit errors) or never (rows).
Not yet seen from a live source: tests push them into a real Prometheus.
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
from clusters.gpu_causes import ECC, ROW_REMAP, ROW_REMAP_FAILURE, xid_cause


@dataclass(frozen=True, slots=True)
class Sign:
    """A metric that tells of errors. `cause` names them; "": its values are XIDs."""

    metric: str
    cause: str
    highest: int  # what is above is no sample: DCGM's blanks are 2147483632 or 9223372036854775794
    suspects: (
        str  # GPUs of which the metric may tell an error within an hour: those to look at sample by sample
    )

    def cause_of(self, before: int, value: int) -> str:
        """Of a sample behind another; "": no error."""
        if self.cause:
            return self.cause if value > before else ""
        return xid_cause(value) if value not in {0, before} else ""


XID = Sign("DCGM_FI_DEV_XID_ERRORS", "", 999, "max by ({gpu}) (max_over_time({series}[{hour}])) > 0")
"""NVIDIA's catalog ends below 200."""


def _counter(metric: str, cause: str) -> Sign:
    """The hour before belongs to it: its last sample says what was there."""
    widest = "max by ({gpu}) (max_over_time({series}[{hours}])) - min by ({gpu}) (min_over_time({series}[{hours}])) > 0"
    return Sign(metric, cause, (1 << 31) - 17, widest)


MEMORY = (
    _counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", ECC),
    _counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", ROW_REMAP),
    _counter("DCGM_FI_DEV_ROW_REMAP_FAILURE", ROW_REMAP_FAILURE),
)
"""Errors that the memory could not correct. The last is a gauge, 1 from the first failure on."""
SIGNS = (XID, *MEMORY)
MODELS = ("modelName", "modelname")
SAME = 600
"""Seconds within which two observers of one GPU that tell of one cause tell of one error."""


@dataclass(frozen=True, slots=True)
class GpuError:
    """One of one GPU. Moments are epoch seconds: it happened after `clean_until` and was there at `at`."""

    uuid: str
    gpu_slice: str  # of MIG, its GPU_I_ID; "": the whole GPU
    cause: str  # "XID 79", or that of a `Sign`
    at: int
    clean_until: int
    node: str
    gpu_model: str
    jobs: tuple[str, ...]  # who held it, around: Slurm's number, or "namespace/pod/container"


Gpu = tuple[str, str]
Observed = tuple[Decimal, int, Labels]
"""Epoch second, value, and the labels beside it."""


@dataclass(slots=True)
class GpuErrors(Connected):
    """Reads errors over one connection. After `read`, `complete_through` is the epoch second up to which they were.

    `undated` counts GPUs whose first sample told of an XID: when it happened is not known.
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
        suspects = {sign: self._suspects(sign, hours) for sign in SIGNS}
        for hour in range(hours.start, hours.stop, HOUR):
            for sign, by_hour in suspects.items():
                yield from self._of_hour(sign, hour, sorted(by_hour.get(hour, ())))
        self.complete_through = hours.stop

    def close(self) -> None:
        self.client.close()

    def _selector(self, sign: Sign, *matchers: str) -> str:
        return f"{sign.metric}{{{','.join(filter(None, (*matchers, self.matcher)))}}}"

    def _suspects(self, sign: Sign, hours: range) -> Mapping[int, set[str]]:
        """By hour the GPUs to look at. One query."""
        query = sign.suspects.format(
            gpu=",".join(UUIDS), series=self._selector(sign), hour=span(HOUR), hours=span(2 * HOUR)
        )
        by_hour: dict[int, set[str]] = {}
        for one in self.client.range(query, start=hours.start + HOUR, end=hours.stop, step=HOUR):
            if uuid := first(one.metric, UUIDS):
                for at, _ in one.values:
                    by_hour.setdefault(int(at) - HOUR, set()).add(uuid)
        return by_hour

    def _of_hour(self, sign: Sign, hour: int, uuids: Sequence[str]) -> Iterator[GpuError]:
        """With the hour before, whose last sample says what was there."""
        by_gpu: dict[Gpu, dict[tuple[str, ...], list[Observed]]] = {}
        for begin in range(0, len(uuids), AT_ONCE):
            some = alternatives(uuids[begin : begin + AT_ONCE])
            for name in UUIDS:
                matcher = f'{name}=~"{some}"'
                query = f"{self._selector(sign, matcher)}[{span(2 * HOUR)}]"
                for one in self.client.instant(query, hour + HOUR):
                    gpu = first(one.metric, UUIDS), one.metric.get("GPU_I_ID", "")
                    observer = tuple(one.metric.get(label, "") for label in OBSERVER)
                    samples = by_gpu.setdefault(gpu, {}).setdefault(observer, [])
                    samples += [
                        (at, int(v), one.metric)
                        for at, v in one.values
                        if v.is_finite() and 0 <= v <= sign.highest
                    ]
        for gpu, observers in sorted(by_gpu.items()):
            yield from self._errors(sign, gpu, observers.values(), hour)

    def _errors(
        self, sign: Sign, gpu: Gpu, observers: Iterable[list[Observed]], hour: int
    ) -> Iterator[GpuError]:
        errors: list[GpuError] = []
        for samples in observers:
            samples.sort(key=lambda sample: sample[0])
            if sign is XID and samples and samples[0][1] and hour <= samples[0][0] < hour + HOUR:
                self.undated.add(gpu)
            errors += [
                _error(gpu, cause, before, sample)
                for before, sample in pairwise(samples)
                if hour <= sample[0] < hour + HOUR and (cause := sign.cause_of(before[1], sample[1]))
            ]
        last: dict[str, int] = {}
        for error in sorted(errors, key=lambda error: error.at):
            if error.at - last.get(error.cause, -SAME) >= SAME:
                last[error.cause] = error.at
                yield error


def connect(
    endpoint: Endpoint, *, login: PrometheusLogin, options: PrometheusOptions, clock: Callable[[], int]
) -> GpuErrors:
    """What reads them; it calls nobody yet. `clock` gives epoch seconds."""
    client = PrometheusClient(endpoint, login, clock=clock, parameters=options.parameters)
    return GpuErrors(client, options.busy_matcher)


def _error(gpu: Gpu, cause: str, before: Observed, sample: Observed) -> GpuError:
    """A job that died of it is not on the device any more when it shows: the sample before has it."""
    at, _, labels = sample
    return GpuError(
        uuid=gpu[0],
        gpu_slice=gpu[1],
        cause=cause,
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
