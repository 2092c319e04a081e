"""How busy the devices of each run were in each hour: by their own samples, else by an average if so told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial

from clusters.connectors.base import BusyHour, BusySource, UsageFact
from clusters.connectors.prometheus.catalog import Metric
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR
from clusters.connectors.prometheus.options import PrometheusOptions, Scope
from clusters.connectors.prometheus.queries import alternatives
from clusters.connectors.prometheus.runs import NAMES, Run, RunMatch, Runs, TelemetryGaps
from clusters.connectors.prometheus.samples import (
    AT_ONCE,
    ByParts,
    DeviceSeries,
    Samples,
    Tallies,
    Tally,
    busy,
    stands_for,
)

RunHour = tuple[int, str]
"""Begin of an hour, and the key of a run."""


@dataclass(slots=True)
class Average:
    """Of devices in an hour, from 0 to 1. `covered`: seconds of the hour that the best seen of them has samples for."""

    total: Decimal = Decimal(0)
    count: int = 0
    covered: int = 0

    def add(self, tally: Tally, metric: Metric, interval: int) -> None:
        self.total += tally.total / metric.divisor
        self.count += tally.count
        self.covered = max(self.covered, stands_for(tally.count, interval, HOUR))


@dataclass(slots=True)
class _Part:
    """Some hours at work: what was held in them, and what has been told of it. Averages by source, hour and name."""

    hours: range
    run_hours: Mapping[RunHour, Run]
    rows: dict[RunHour, BusyHour] = field(default_factory=dict)
    averages: dict[tuple[BusySource, int, str, str], Average] = field(default_factory=dict)

    def average(self, source: BusySource, hour: int, name: str, metric: Metric) -> Average:
        return self.averages.setdefault((source, hour, name, metric.name), Average())


class Telemetry:
    """Reads utilisation of runs. `silence` gathers what the operator should know."""

    def __init__(self, client: PrometheusClient, options: PrometheusOptions) -> None:
        self.client = client
        self.options = options.utilisation
        self.gaps = TelemetryGaps(client.http.address)
        self.readers = [
            Samples(client, metric, matchers=(options.busy_matcher,), others=NAMES)
            for metric in self.options.metrics
        ]

    @property
    def on(self) -> bool:
        return self.options.scope is not Scope.OFF

    def rows(self, facts: Iterable[UsageFact], hours: range) -> Iterator[BusyHour]:
        """Rows in order of hours, of which some are held at a time. `hours`: begins of whole hours of UTC.

        What the first are made of is asked for at once. Raises `ConnectorError`.
        """
        if not self.on or not hours:
            return iter(())
        return self._rows(ByParts(self.client, hours, partial(self._read, Runs(facts))))

    def _rows(self, parts: Iterator[_Part]) -> Iterator[BusyHour]:
        for part in parts:
            self.gaps.add_hours(part.run_hours, part.rows, self.readers)
            yield from (row for _, row in sorted(part.rows.items()))

    def _read(self, runs: Runs, hours: range) -> _Part:
        run_hours = {(hour, run.key): run for run in runs.all for hour in _hours_of(run, hours)}
        part = _Part(hours, run_hours)
        if not run_hours:
            return part
        for samples in self.readers:
            if not self._is_needed(part, samples.metric):
                continue
            if samples.exists(hours):
                self._add_rows(part, runs, samples)
                self.gaps.add_reader(samples)
        for (hour, key), run in run_hours.items():
            if (hour, key) not in part.rows and (row := self._averaged(part, run, hour)):
                part.rows[hour, key] = row
        return part

    def _is_needed(self, part: _Part, metric: Metric) -> bool:
        """Whether a node is left that no metric before told of, with a run that this one may tell of."""
        covered_nodes = {(hour, part.run_hours[hour, key].node) for hour, key in part.rows}
        return any(
            (hour, run.node) not in covered_nodes and (metric.mig or not run.profile)
            for (hour, _), run in part.run_hours.items()
        )

    def _add_rows(self, part: _Part, runs: Runs, samples: Samples) -> None:
        series = samples.read(part.hours)
        intervals = samples.interval(series)
        covered_nodes = {(hour, part.run_hours[hour, key].node) for hour, key in part.rows}
        by_run: dict[RunHour, Tallies] = {}
        shared: dict[int, list[tuple[DeviceSeries, RunMatch]]] = {}
        for one in series:
            named = runs.named(one.labels)
            for hour, tally in one.hours.items():
                if BusySource.CLUSTER in self.options.wider:
                    average = part.average(BusySource.CLUSTER, hour, "", samples.metric)
                    average.add(tally, samples.metric, intervals[one.labels.get("job", "")])
                live = [run for run in named.runs if (hour, run.key) in part.run_hours]
                if len({run.uid for run in live}) > 1:
                    shared.setdefault(hour, []).append((one, named))
                elif run := named.resolve(live, one.labels):
                    by_run.setdefault((hour, run.key), Tallies()).add(one, tally)
        for hour, those in shared.items():
            _cut(samples, hour, those, by_run)
        for (hour, key), tallies in by_run.items():
            run = part.run_hours[hour, key]
            if (hour, run.node) not in covered_nodes:
                self._row(part, run, hour, tallies, samples.metric, intervals)
        samples.look_for_peak(series, part.hours)

    def _row(
        self, part: _Part, run: Run, hour: int, tallies: Tallies, metric: Metric, intervals: Mapping[str, int]
    ) -> None:
        worked, covered = tallies.worked(metric, intervals, seconds=run.seconds(hour), devices=run.gpus)
        part.rows[hour, run.key] = BusyHour(run.key, hour, worked, covered, BusySource.DEVICE, metric.name)
        for source, name in ((BusySource.NODE, run.node), (BusySource.MODEL, run.model)):
            if source not in self.options.wider:
                continue
            for job, tally in tallies.best():
                part.average(source, hour, name, metric).add(tally, metric, intervals[job])

    def _averaged(self, part: _Part, run: Run, hour: int) -> BusyHour | None:
        """By the nearest average that there is and that may stand in."""
        names = {BusySource.NODE: run.node, BusySource.MODEL: run.model, BusySource.CLUSTER: ""}
        for source in self.options.wider:
            for samples in self.readers:
                average = part.averages.get((source, hour, names[source], samples.metric.name))
                if average is not None:
                    covered = run.seconds(hour) * run.gpus * average.covered // HOUR
                    worked = busy(average.total / average.count, covered)
                    return BusyHour(run.key, hour, worked, covered, source, samples.metric.name)
        return None


def _hours_of(run: Run, hours: range) -> range:
    """Those of `hours` in which it held its devices."""
    begin = max(run.started - run.started % HOUR, hours.start)
    return range(begin, min(run.until, hours.stop), HOUR)


def _cut(
    samples: Samples,
    hour: int,
    shared: Sequence[tuple[DeviceSeries, RunMatch]],
    by_run: dict[RunHour, Tallies],
) -> None:
    """Pods that had one name in one hour: each sample is of the one that had begun last."""
    by_labels = {frozenset(one.labels.items()): named for one, named in shared}
    for spelled in sorted({named.spelled for _, named in shared}):
        pods = sorted({one.labels[spelled] for one, named in shared if named.spelled == spelled})
        for begin in range(0, len(pods), AT_ONCE):
            matcher = f'{spelled}=~"{alternatives(pods[begin : begin + AT_ONCE])}"'
            for labels, values in samples.raw(hour, [matcher]):
                named = by_labels.get(frozenset(labels.items()), RunMatch(()))
                _share_out(DeviceSeries(labels), named, hour, values, by_run)


def _share_out(
    series: DeviceSeries,
    named: RunMatch,
    hour: int,
    values: Iterable[tuple[Decimal, Decimal]],
    by_run: dict[RunHour, Tallies],
) -> None:
    live = sorted((run for run in named.runs if run.seconds(hour)), key=lambda run: run.started)
    for at, value in values:
        last = next((run.uid for run in reversed(live) if run.started <= at), None)
        run = named.resolve([run for run in live if run.uid == last], series.labels)
        if run is not None:
            by_run.setdefault((hour, run.key), Tallies()).add(series, Tally(value, 1))
