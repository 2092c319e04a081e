"""Test connection, DCGM: which metric there is, how its labels are spelled, and of how much that pods held it tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusters.connectors.base import BusyHour, BusySource, UsageFact
from clusters.connectors.prometheus.coverage import HOUR, utc
from clusters.connectors.prometheus.diagnostics import count_of, naming
from clusters.connectors.prometheus.metrics import CATALOGUE, PREFERRED
from clusters.connectors.prometheus.options import Scope
from clusters.connectors.prometheus.runs import POD_UIDS, SPELLINGS, Runs
from clusters.connectors.prometheus.samples import HOSTS, UUIDS, DeviceSeries, Samples
from clusters.connectors.prometheus.session import LOOKED, Visit
from clusters.connectors.prometheus.usage_fetch import SETTLE, Sweep
from clusters.connectors.prometheus.utilisation import Telemetry

ENABLE = (
    "Let Prometheus scrape dcgm-exporter: in the GPU Operator, set dcgmExporter.enabled and "
    "dcgmExporter.serviceMonitor.enabled to true."
)
PROFILING = f"Add {PREFERRED} to the exporter's list of metrics (dcgmExporter.config in the GPU Operator)."
POD_LABELS = (
    "Start dcgm-exporter with DCGM_EXPORTER_KUBERNETES=true, with kubelet's directory pod-resources mounted."
)


@dataclass(slots=True)
class _Hour:
    """The last whole hour that has settled: who held devices in it, and what was told of them."""

    begin: int
    runs: Runs
    rows: Sequence[BusyHour]
    telemetry: Telemetry

    @property
    def held(self) -> int:
        """Device-seconds."""
        return sum(run.seconds(self.begin) * run.gpus for run in self.runs.all)


def telemetry(visit: Visit, subject: str) -> bool:
    """Bills need none of it, so nothing of it fails."""
    options = visit.queries.options
    if options.utilisation.scope is Scope.OFF:
        visit.ok(subject, "How busy GPUs are is not read: the option utilisation.scope is off.")
        return True
    telling = [
        samples for samples in Telemetry(visit.client, options).readers if visit.count(samples.selector())
    ]
    if not telling:
        _absent(visit, subject)
        return True
    hour = _hour(visit)
    _spellings(visit, subject, telling, hour)
    _coverage(visit, hour)
    _doubts(visit, hour)
    return True


def _absent(visit: Visit, subject: str) -> None:
    """None of the metrics that were asked for: perhaps there are others, or they have other labels."""
    others = [metric.name for metric in CATALOGUE if visit.count(f"{metric.name}{{{_matcher(visit)}}}")]
    if others:
        visit.warn(
            subject,
            f"There is no {_wanted(visit)}, but there is {naming(others)}.",
            "Set the option utilisation.metric to one of these.",
        )
    elif any(visit.count(metric.name) for metric in CATALOGUE):
        visit.warn(
            subject,
            f"There are series of DCGM, but none fits the matcher {_matcher(visit)}.",
            "Set the option utilisation.matcher to one that fits them, or to the empty text.",
        )
    else:
        visit.warn(
            subject,
            "There are no series of DCGM: how busy GPUs are is unknown. Bills do not need it, reports of waste do.",
            ENABLE,
        )


def _matcher(visit: Visit) -> str:
    return visit.queries.options.busy_matcher


def _wanted(visit: Visit) -> str:
    return " or ".join(metric.name for metric in visit.queries.options.utilisation.metrics)


def _hour(visit: Visit) -> _Hour:
    end = (visit.now - SETTLE) // HOUR * HOUR
    sweep = Sweep(visit.client, visit.queries)
    rows = list(sweep.rows(since=end - HOUR, until=end, open_keys=(), now=visit.now))
    facts = {row.source_key: row for row in rows if isinstance(row, UsageFact)}
    reader = Telemetry(visit.client, visit.queries.options)
    told = list(reader.rows(facts.values(), range(end - HOUR, end, HOUR)))
    return _Hour(end - HOUR, Runs(facts.values()), told, reader)


def _spellings(visit: Visit, subject: str, telling: Sequence[Samples], hour: _Hour) -> None:
    """Which metrics there are of how many devices, and by which labels they name pods."""
    for samples in telling:
        found = [
            DeviceSeries(one.metric)
            for one in visit.client.instant(
                f"count by ({','.join(samples.kept)}) (count_over_time({samples.selector()}[{LOOKED}s]))",
                visit.now,
            )
        ]
        devices = {one.device for one in found}
        slices = {one.device for one in found if one.labels.get("GPU_I_ID")}
        told = f"{samples.metric.name} of {count_of(len(devices), 'device')}"
        told += f", {len(slices)} of them MIG slices" if slices else ""
        spelled = _spelled(found, hour.runs)
        if spelled or not hour.runs.all:
            visit.ok(subject, f"{told}; labels {', '.join(spelled or _used(found, (*HOSTS, *UUIDS)))}.")
        else:
            visit.warn(
                subject,
                f"{told}, but its labels name no pod that holds devices: the use of each is unknown.",
                POD_LABELS,
            )


def _spelled(found: Iterable[DeviceSeries], runs: Runs) -> list[str]:
    """Labels by which pods, nodes and devices are told; none where no pod is."""
    naming_pods = [one for one in found if runs.named(one.labels).runs]
    pods = {runs.named(one.labels).spelled for one in naming_pods}
    spelled = [pod for _, pod, _ in SPELLINGS if pod in pods]
    return [*spelled, *_used(naming_pods, (*POD_UIDS, *HOSTS, *UUIDS))] if spelled else []


def _used(found: Iterable[DeviceSeries], names: Iterable[str]) -> list[str]:
    used = {name for one in found for name, value in one.labels.items() if value}
    return [name for name in names if name in used]


def _coverage(visit: Visit, hour: _Hour) -> None:
    if not hour.held:
        visit.ok("Utilisation", f"No pod held devices in the hour from {utc(hour.begin)}.")
        return
    own = sum(row.covered for row in hour.rows if row.source is BusySource.DEVICE)
    wider = sum(row.covered for row in hour.rows) - own
    told = f"In the hour from {utc(hour.begin)} their own devices tell of {own * 100 // hour.held} % of what pods held"
    told += f", averages of {wider * 100 // hour.held} %" if wider else ""
    metrics = sorted({row.metric for row in hour.rows})
    told += f" ({naming(metrics)})" if metrics else ""
    if hour.rows:
        visit.ok("Utilisation", f"{told}{'.' if own + wider >= hour.held else '; the rest is unknown.'}")
    else:
        visit.warn("Utilisation", f"{told}: how busy they were is unknown.", PROFILING)


def _doubts(visit: Visit, hour: _Hour) -> None:
    """What looks as if the metric were read in the wrong unit, or does not work on these devices."""
    silence = hour.telemetry.silence
    for sentence in silence.doubts():
        visit.warn("Units of DCGM", sentence, "Set the option utilisation.divisor, or remove it.")
    if silence.sliced:
        visit.warn("MIG", silence.about_slices(), PROFILING)
