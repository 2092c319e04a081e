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
from clusters.connectors.prometheus.session import CHECK_WINDOW, CheckSession
from clusters.connectors.prometheus.usage_fetch import SETTLE, UsageFetch
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
    def device_time(self) -> int:
        """Device-seconds."""
        return sum(run.seconds(self.begin) * run.gpus for run in self.runs.all)


def telemetry(visit: CheckSession, subject: str) -> bool:
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


def _absent(visit: CheckSession, subject: str) -> None:
    """None of the metrics that were asked for: perhaps there are others, or they have other labels."""
    others = [metric.name for metric in CATALOGUE if visit.count(f"{metric.name}{{{_matcher(visit)}}}")]
    if others:
        visit.warn(
            subject,
            f"There is no {_metric_names(visit)}, but there is {naming(others)}.",
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


def _matcher(visit: CheckSession) -> str:
    return visit.queries.options.busy_matcher


def _metric_names(visit: CheckSession) -> str:
    return " or ".join(metric.name for metric in visit.queries.options.utilisation.metrics)


def _hour(visit: CheckSession) -> _Hour:
    end = (visit.now - SETTLE) // HOUR * HOUR
    fetch = UsageFetch(visit.client, visit.queries)
    rows = list(fetch.rows(since=end - HOUR, until=end, open_keys=(), now=visit.now))
    facts = {row.source_key: row for row in rows if isinstance(row, UsageFact)}
    reader = Telemetry(visit.client, visit.queries.options)
    busy_hours = list(reader.rows(facts.values(), range(end - HOUR, end, HOUR)))
    return _Hour(end - HOUR, Runs(facts.values()), busy_hours, reader)


def _spellings(visit: CheckSession, subject: str, telling: Sequence[Samples], hour: _Hour) -> None:
    """Which metrics there are of how many devices, and by which labels they name pods."""
    for samples in telling:
        series = [
            DeviceSeries(one.metric)
            for one in visit.client.instant(
                f"count by ({','.join(samples.label_names)}) (count_over_time({samples.selector()}[{CHECK_WINDOW}s]))",
                visit.now,
            )
        ]
        devices = {one.device for one in series}
        slices = {one.device for one in series if one.labels.get("GPU_I_ID")}
        sentence = f"{samples.metric.name} of {count_of(len(devices), 'device')}"
        sentence += f", {len(slices)} of them MIG slices" if slices else ""
        spelled = _spelled(series, hour.runs)
        if spelled or not hour.runs.all:
            visit.ok(subject, f"{sentence}; labels {', '.join(spelled or _used(series, (*HOSTS, *UUIDS)))}.")
        else:
            visit.warn(
                subject,
                f"{sentence}, but its labels name no pod that holds devices: the use of each is unknown.",
                POD_LABELS,
            )


def _spelled(series: Iterable[DeviceSeries], runs: Runs) -> list[str]:
    """Labels by which pods, nodes and devices are told; none where no pod is."""
    naming_pods = [one for one in series if runs.named(one.labels).runs]
    pods = {runs.named(one.labels).spelled for one in naming_pods}
    spelled = [pod for _, pod, _ in SPELLINGS if pod in pods]
    return [*spelled, *_used(naming_pods, (*POD_UIDS, *HOSTS, *UUIDS))] if spelled else []


def _used(series: Iterable[DeviceSeries], names: Iterable[str]) -> list[str]:
    used = {name for one in series for name, value in one.labels.items() if value}
    return [name for name in names if name in used]


def _coverage(visit: CheckSession, hour: _Hour) -> None:
    if not hour.device_time:
        visit.ok("Utilisation", f"No pod held devices in the hour from {utc(hour.begin)}.")
        return
    own = sum(row.covered for row in hour.rows if row.source is BusySource.DEVICE)
    wider = sum(row.covered for row in hour.rows) - own
    percent = own * 100 // hour.device_time
    sentence = f"In the hour from {utc(hour.begin)} their own devices tell of {percent} % of what pods held"
    sentence += f", averages of {wider * 100 // hour.device_time} %" if wider else ""
    metrics = sorted({row.metric for row in hour.rows})
    sentence += f" ({naming(metrics)})" if metrics else ""
    if hour.rows:
        visit.ok(
            "Utilisation",
            f"{sentence}{'.' if own + wider >= hour.device_time else '; the rest is unknown.'}",
        )
    else:
        visit.warn("Utilisation", f"{sentence}: how busy they were is unknown.", PROFILING)


def _doubts(visit: CheckSession, hour: _Hour) -> None:
    """What looks as if the metric were read in the wrong unit, or does not work on these devices."""
    gaps = hour.telemetry.gaps
    for sentence in gaps.doubts():
        visit.warn("Units of DCGM", sentence, "Set the option utilisation.divisor, or remove it.")
    if gaps.sliced:
        visit.warn("MIG", gaps.about_slices(), PROFILING)
