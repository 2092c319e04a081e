"""Test connection, beyond kube-state-metrics: the gauges of a preset, and DCGM with what it covers of pods' devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from clusters.connectors.base import BusyHour, BusySource, UsageFact
from clusters.connectors.findings import Finding, Findings
from clusters.connectors.prometheus import queries as metrics
from clusters.connectors.prometheus.catalog import CATALOGUE, PREFERRED, QUEUES, QueueSeries
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, utc, watch
from clusters.connectors.prometheus.energy import POWER
from clusters.connectors.prometheus.facts import count_of, naming
from clusters.connectors.prometheus.gpu_errors import SIGNS
from clusters.connectors.prometheus.lifecycle import Window
from clusters.connectors.prometheus.options import Scope
from clusters.connectors.prometheus.queries import Queries
from clusters.connectors.prometheus.responses import Series
from clusters.connectors.prometheus.runs import POD_UIDS, SPELLINGS, Runs
from clusters.connectors.prometheus.samples import HOSTS, UUIDS, DeviceSeries, Samples
from clusters.connectors.prometheus.usage_fetch import SETTLE, UsageFetch
from clusters.connectors.prometheus.utilisation import Telemetry
from clusters.connectors.sums import MeterUnits

CHECK_WINDOW = 3600  # seconds before the present that are looked at


@dataclass
class CheckSession(Findings):
    """One check of a Prometheus: its client, and what it has answered so far."""

    client: PrometheusClient
    queries: Queries
    ours: int  # our clock, epoch seconds
    meters: MeterUnits  # declared ones
    now: int = 0  # Prometheus's own
    findings: list[Finding] = field(default_factory=list)

    def count(self, selector: str) -> int:
        """Series of the selector in the time that is looked at."""
        series = self.client.instant(f"count(count_over_time({selector}[{CHECK_WINDOW}s]))", self.now)
        return int(series[0].value[1]) if series and series[0].value else 0

    @property
    def window(self) -> Window:
        since = self.now - CHECK_WINDOW
        return Window(
            since, self.now, self.now, watch(self.client, self.queries, since=since, until=self.now)
        )


def queues(session: CheckSession, subject: str) -> bool:
    """Bills come from pods; the gauges of queues are beside them, to compare."""
    preset = session.queries.options.preset
    series = QUEUES.get(preset) if preset else None
    if series is None:
        return True
    usages = session.client.instant(
        f"sum by ({series.name}) (max by ({series.by}) ({session.queries.selector(series.gauge, series.where)}))",
        session.now,
    )
    if not usages:
        session.warn(
            subject,
            f"There is no {series.gauge}: bills do not need it, but nothing can be compared with them.",
            series.mend,
        )
        return True
    # A queue above others tells their GPUs over again, so only those that pods name are added up.
    leaves = _named_by_pods(session, series)
    by_queue = {one.metric.get(series.name, ""): _gpus(one, series) for one in usages}
    below = {name: gpus for name, gpus in by_queue.items() if name in leaves}
    session.ok(
        subject,
        f"{series.gauge} tells {_number(sum(below.values(), Fraction(0)))} GPUs in {len(below)} queues with pods, of "
        f"{len(by_queue)} queues.",
    )
    return True


def sampled(session: CheckSession, subject: str) -> bool:
    """The gauge of what users hold, and what tells that the exporter is there at all."""
    series = session.queries.options.sampled
    if series is None:
        return True
    users = session.count(session.queries.selector(series.metric))
    hosts = session.count(session.queries.selector(series.always))
    if users:
        session.ok(subject, f"{series.metric} tells of {users:,} uses in the last hour.")
    elif hosts:
        session.warn(subject, f"Nobody had {series.metric} in the last hour: right, if nobody used a GPU.")
    else:
        session.fail(subject, f"There was no {series.metric} in the last hour.", series.mend)
    return True


def _named_by_pods(session: CheckSession, series: QueueSeries) -> set[str]:
    """The queues of the last hour's pods."""
    names = set()
    for label in series.labels:
        selector = session.queries.selector(metrics.POD_LABELS, f'{label}!=""')
        query = f"count by ({label}) (count_over_time({selector}[{metrics.span(CHECK_WINDOW)}]))"
        names |= {one.metric.get(label, "") for one in session.client.instant(query, session.now)}
    return names


def _gpus(one: Series, series: QueueSeries) -> Fraction:
    value = one.value[1] if one.value else None
    return Fraction(value) / series.per_gpu if value is not None and value.is_finite() else Fraction(0)


def _number(value: Fraction) -> str:
    if value.denominator == 1:
        return f"{value.numerator:,}"
    hundredths = (200 * value.numerator + value.denominator) // (2 * value.denominator)
    return f"{hundredths // 100:,}.{hundredths % 100:02}"


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


def telemetry(session: CheckSession, subject: str) -> bool:
    """Bills need none of it, so nothing of it fails."""
    options = session.queries.options
    if options.utilisation.scope is Scope.OFF:
        session.ok(subject, "How busy GPUs are is not read: the option utilisation.scope is off.")
        return True
    telling = [
        samples for samples in Telemetry(session.client, options).readers if session.count(samples.selector())
    ]
    if not telling:
        _absent(session, subject)
        return True
    hour = _hour(session)
    _spellings(session, subject, telling, hour)
    _coverage(session, hour)
    _doubts(session, hour)
    return True


def gpu_errors(session: CheckSession, subject: str) -> bool:
    """Bills need none of it: where it is not there, no rule credits jobs for their GPUs' failures."""
    series = {sign.metric: _series(session, sign.metric) for sign in SIGNS}
    there = [f"{metric} has {count:,} series in the last hour." for metric, count in series.items() if count]
    absent = [metric for metric, count in series.items() if not count]
    if absent:
        there.append(f"There is no {naming(absent)}: no failed GPU is seen by it.")
    session.ok(subject, " ".join(there))
    return True


def energy(session: CheckSession, subject: str) -> bool:
    """Only a meter of the energy of pods needs it."""
    series = _series(session, POWER)
    is_there = f"{POWER} has {series:,} series in the last hour."
    session.ok(subject, is_there if series else f"There is no {POWER}: the energy of pods is unknown.")
    return True


def _series(session: CheckSession, metric: str) -> int:
    return session.count(f"{metric}{{{session.queries.options.busy_matcher}}}")


def _absent(session: CheckSession, subject: str) -> None:
    """None of the metrics that were asked for: perhaps there are others, or they have other labels."""
    others = [metric.name for metric in CATALOGUE if session.count(f"{metric.name}{{{_matcher(session)}}}")]
    if others:
        session.warn(
            subject,
            f"There is no {_metric_names(session)}, but there is {naming(others)}.",
            "Set the option utilisation.metric to one of these.",
        )
    elif any(session.count(metric.name) for metric in CATALOGUE):
        session.warn(
            subject,
            f"There are series of DCGM, but none fits the matcher {_matcher(session)}.",
            "Set the option utilisation.matcher to one that fits them, or to the empty text.",
        )
    else:
        session.warn(
            subject,
            "There are no series of DCGM: how busy GPUs are is unknown. Bills do not need it, reports of waste do.",
            ENABLE,
        )


def _matcher(session: CheckSession) -> str:
    return session.queries.options.busy_matcher


def _metric_names(session: CheckSession) -> str:
    return " or ".join(metric.name for metric in session.queries.options.utilisation.metrics)


def _hour(session: CheckSession) -> _Hour:
    end = (session.now - SETTLE) // HOUR * HOUR
    fetch = UsageFetch(session.client, session.queries)
    rows = list(fetch.rows(since=end - HOUR, until=end, open_keys=(), now=session.now))
    facts = {row.source_key: row for row in rows if isinstance(row, UsageFact)}
    reader = Telemetry(session.client, session.queries.options)
    busy_hours = list(reader.rows(facts.values(), range(end - HOUR, end, HOUR)))
    return _Hour(end - HOUR, Runs(facts.values()), busy_hours, reader)


def _spellings(session: CheckSession, subject: str, telling: Sequence[Samples], hour: _Hour) -> None:
    """Which metrics there are of how many devices, and by which labels they name pods."""
    for samples in telling:
        series = [
            DeviceSeries(one.metric)
            for one in session.client.instant(
                f"count by ({','.join(samples.label_names)}) (count_over_time({samples.selector()}[{CHECK_WINDOW}s]))",
                session.now,
            )
        ]
        devices = {one.device for one in series}
        slices = {one.device for one in series if one.labels.get("GPU_I_ID")}
        sentence = f"{samples.metric.name} of {count_of(len(devices), 'device')}"
        sentence += f", {len(slices)} of them MIG slices" if slices else ""
        spelled = _spelled(series, hour.runs)
        if spelled or not hour.runs.all:
            session.ok(
                subject, f"{sentence}; labels {', '.join(spelled or _used(series, (*HOSTS, *UUIDS)))}."
            )
        else:
            session.warn(
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


def _coverage(session: CheckSession, hour: _Hour) -> None:
    if not hour.device_time:
        session.ok("Utilisation", f"No pod held devices in the hour from {utc(hour.begin)}.")
        return
    own = sum(row.covered for row in hour.rows if row.source is BusySource.DEVICE)
    wider = sum(row.covered for row in hour.rows) - own
    percent = own * 100 // hour.device_time
    sentence = f"In the hour from {utc(hour.begin)} their own devices tell of {percent} % of what pods held"
    sentence += f", averages of {wider * 100 // hour.device_time} %" if wider else ""
    metrics = sorted({row.metric for row in hour.rows})
    sentence += f" ({naming(metrics)})" if metrics else ""
    if hour.rows:
        session.ok(
            "Utilisation",
            f"{sentence}{'.' if own + wider >= hour.device_time else '; the rest is unknown.'}",
        )
    else:
        session.warn("Utilisation", f"{sentence}: how busy they were is unknown.", PROFILING)


def _doubts(session: CheckSession, hour: _Hour) -> None:
    """What looks as if the metric were read in the wrong unit, or does not work on these devices."""
    gaps = hour.telemetry.gaps
    for sentence in gaps.doubts():
        session.warn("Units of DCGM", sentence, "Set the option utilisation.divisor, or remove it.")
    if gaps.sliced:
        session.warn("MIG", gaps.about_slices(), PROFILING)
