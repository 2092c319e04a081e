"""How busy devices were, by series and hour of UTC: from samples to device-seconds.

Samples that are none are left out. What counts, for how long a sample stands, and how much of it was work is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TypeVar

from clusters.connectors.http import TooLargeError
from clusters.connectors.prometheus.catalog import HIGHEST_RATIO, ONE, RATIO, Metric
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, MINUTE
from clusters.connectors.prometheus.queries import alternatives, equal, span
from clusters.connectors.prometheus.responses import (
    Labels,
    Sample,
    Series,
    TooMuchError,
    first,
    usual_step,
    whole,
)

AT_ONCE = 250  # devices or pods whose samples one query asks for
UUIDS = ("UUID", "uuid")
HOSTS = ("Hostname", "hostname")
DEVICE = (*UUIDS, *HOSTS, "gpu", "GPU_I_ID", "GPU_I_PROFILE", "vgpu")
OBSERVER = ("job", "replica", "prometheus_replica")

Device = tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Samples of one series in one hour: their sum in the metric's own unit, and how many."""

    total: Decimal
    count: int


@dataclass(slots=True)
class DeviceSeries:
    """One device as one observer told of it under one set of labels. `hours`: by the epoch second of their begin.

    `device` is the same for all who tell of it: its UUID, else its node and number; slice and replica. `observer` is
    who told: a device that two jobs or two replicas scrape is told of twice.
    """

    labels: Labels
    hours: dict[int, Tally] = field(default_factory=dict)
    device: Device = field(init=False)
    observer: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        uuid = first(self.labels, UUIDS)
        place = (uuid,) if uuid else (first(self.labels, HOSTS), self.labels.get("gpu", ""))
        self.device = (*place, self.labels.get("GPU_I_ID", ""), self.labels.get("vgpu", ""))
        self.observer = tuple(self.labels.get(name, "") for name in OBSERVER)


class Samples:
    """Reads one metric. `others`: labels to keep beside the device's. `left_out` counts samples that are none."""

    def __init__(
        self, client: PrometheusClient, metric: Metric, *, matchers: Sequence[str], others: Sequence[str]
    ) -> None:
        self.client = client
        self.metric = metric
        self.matchers = matchers
        self.label_names = (*OBSERVER, *DEVICE, *others)
        self.left_out = 0
        self._there = False
        self.peak = Decimal(0)  # of a percentage, as far as it matters

    def selector(self, *more: str) -> str:
        return f"{self.metric.name}{{{','.join(filter(None, (*more, *self.matchers)))}}}"

    def exists(self, hours: range) -> bool:
        """Whether the metric has a series at all: in these hours, or in others that were asked after."""
        if self._there:
            return True
        seconds = hours.stop - hours.start
        series = self.client.instant(
            f"count(count_over_time({self.selector()}[{span(seconds)}]))", hours.stop
        )
        self._there = bool(series)
        return self._there

    def read(self, hours: range) -> list[DeviceSeries]:
        """All series of whole hours, `hours` being their begins. Raises `ConnectorError`."""
        by, samples = ",".join(self.label_names), f"{self.selector()}[{span(HOUR)}]"
        by_key: dict[tuple[str, ...], DeviceSeries] = {}
        odd: dict[int, set[tuple[str, ...]]] = {}
        sums, counts, beyond = self.client.together(
            partial(self._range, query, hours)
            for query in (
                f"sum by ({by}) (sum_over_time({samples}))",
                f"sum by ({by}) (count_over_time({samples}))",
                f"count by ({by}) (max_over_time({samples}) > {self.metric.limit} or min_over_time({samples}) < 0)",
            )
        )
        for one in sums:
            series = by_key[self._key(one.metric)] = DeviceSeries(one.metric)
            for at, total in one.values:
                series.hours[int(at) - HOUR] = Tally(total, 0)
                if not total.is_finite():
                    odd.setdefault(int(at) - HOUR, set()).add(self._key(one.metric))
        for one in counts:
            counted = by_key.get(self._key(one.metric))
            for at, value in one.values:
                if counted is not None and int(at) - HOUR in counted.hours:
                    counted.hours[int(at) - HOUR].count = whole(value) or 0
        for one in beyond:
            for at, _ in one.values:
                odd.setdefault(int(at) - HOUR, set()).add(self._key(one.metric))
        for hour, keys in odd.items():
            self._clean(by_key, hour, keys)
        for series in by_key.values():  # samples that came between the two answers are for the next pull
            series.hours = {hour: tally for hour, tally in series.hours.items() if tally.count}
        return [series for series in by_key.values() if series.hours]

    def raw(self, hour: int, matchers: Iterable[str]) -> Iterator[tuple[Labels, list[Sample]]]:
        """Labels and good samples, with their epoch seconds, of series in an hour."""
        for labels, good, _ in self._samples(hour, matchers):
            yield labels, good

    def interval(self, series: Iterable[DeviceSeries]) -> dict[str, int]:
        """Seconds from scrape to scrape by job: from the series of each that has most samples in an hour."""
        best: dict[str, tuple[int, int, DeviceSeries]] = {}
        for one in series:
            job = one.labels.get("job", "")
            hour, tally = max(one.hours.items(), key=lambda pair: pair[1].count)
            if job not in best or tally.count > best[job][0]:
                best[job] = tally.count, hour, one
        return {job: self._distance(hour, one) for job, (_, hour, one) in best.items()}

    def look_for_peak(self, series: Iterable[DeviceSeries], hours: range) -> None:
        """Raise `peak` to the largest sample of a percentage, or to the largest mean where that is no ratio's."""
        if not self.metric.is_percent or self.peak > HIGHEST_RATIO:
            return
        means = (tally.total / tally.count for one in series for tally in one.hours.values())
        self.peak = max(self.peak, max(means, default=Decimal(0)))
        if self.peak <= HIGHEST_RATIO:
            query = f"max(max_over_time({self.selector()}[{span(hours.stop - hours.start)}]))"
            peaks = self.client.instant(query, hours.stop)
            value = peaks[0].value[1] if peaks and peaks[0].value else Decimal(0)
            self.peak = max(self.peak, value if value.is_finite() else self.peak)

    def _distance(self, hour: int, series: DeviceSeries) -> int:
        """In whole seconds, so that scrapes which come a few milliseconds early or late tell the same each time."""
        matchers = [equal(name, value) for name, value in series.labels.items()]
        return usual_step(samples for _, samples in self.raw(hour, matchers)) or MINUTE

    def _clean(
        self, by_key: dict[tuple[str, ...], DeviceSeries], hour: int, keys: set[tuple[str, ...]]
    ) -> None:
        """Sums of those series from their single samples, without those that are none."""
        sums: dict[tuple[str, ...], Tally] = {}
        for matchers in _parts([by_key[key].labels for key in sorted(keys) if key in by_key]):
            for labels, good, odd in self._samples(hour, matchers):
                key = self._key(labels)
                tally = sums.setdefault(key, Tally(Decimal(0), 0))
                tally.total += sum(value for _, value in good)
                tally.count += len(good)
                self.left_out += odd if key in keys else 0
        for key in keys & by_key.keys():
            tally = sums.get(key, Tally(Decimal(0), 0))
            by_key[key].hours[hour] = tally
            if not tally.count:
                del by_key[key].hours[hour]

    def _samples(self, hour: int, matchers: Iterable[str]) -> Iterator[tuple[Labels, list[Sample], int]]:
        """Labels, good samples, and the number of the others."""
        for one in self.client.instant(f"{self.selector(*matchers)}[{span(HOUR)}]", hour + HOUR):
            labels = {name: one.metric[name] for name in self.label_names if one.metric.get(name)}
            good = [(at, value) for at, value in one.values if self._is_one(value)]
            yield labels, good, len(one.values) - len(good)

    def _is_one(self, value: Decimal) -> bool:
        return value.is_finite() and 0 <= value <= self.metric.limit

    def _key(self, labels: Labels) -> tuple[str, ...]:
        return tuple(labels.get(name, "") for name in self.label_names)

    def _range(self, query: str, hours: range) -> list[Series]:
        return self.client.range(query, start=hours.start + HOUR, end=hours.stop, step=HOUR)


def left_out(samples: Samples) -> str:
    """A sentence on samples that are none."""
    metric = samples.metric
    sentence = (
        f"{samples.left_out:,} samples of {metric.name} were blank or above {metric.limit}, and do not count"
    )
    if metric.divisor == RATIO:
        return f"{sentence}. If it is a percentage here, set the option utilisation.divisor to 100."
    return f"{sentence}."


def _parts(devices: Sequence[Labels]) -> Iterator[list[str]]:
    """Matchers that together select all of these devices, some hundred at a time."""
    for name in UUIDS:
        uuids = sorted({labels[name] for labels in devices if labels.get(name)})
        for begin in range(0, len(uuids), AT_ONCE):
            yield [f'{name}=~"{alternatives(uuids[begin : begin + AT_ONCE])}"']
    if any(not first(labels, UUIDS) for labels in devices):
        yield ['UUID=""', 'uuid=""']


HOURS_AT_ONCE = 6  # hours that one query answers for
HALF = Decimal("0.5")
PLACES = 9  # decimals that are kept of device-seconds

Read = TypeVar("Read")


@dataclass(slots=True)
class Tallies:
    """Samples of all devices of one run or job in one hour, by who told of them."""

    devices: dict[Device, dict[tuple[str, ...], Tally]] = field(default_factory=dict)

    def add(self, series: DeviceSeries, tally: Tally) -> None:
        """An exporter that was restarted goes on under other labels: one observer's series add up."""
        observers = self.devices.setdefault(series.device, {})
        total = observers.setdefault(series.observer, Tally(Decimal(0), 0))
        total.total += tally.total
        total.count += tally.count

    def best(self) -> Iterator[tuple[str, Tally]]:
        """Each device once, as who saw it most often told of it, with the job of who did."""
        for observers in self.devices.values():
            observer = max(sorted(observers), key=lambda one: observers[one].count)
            yield observer[0], observers[observer]

    def worked(
        self, metric: Metric, intervals: Mapping[str, int], *, seconds: int, devices: int | None = None
    ) -> tuple[Decimal, int]:
        """Busy and covered device-seconds of an hour in which each of `devices` was held for `seconds`."""
        total, count, covered = Decimal(0), 0, 0
        for job, tally in self.best():
            total += tally.total
            count += tally.count
            covered += stands_for(tally.count, intervals[job], seconds)
        if devices is not None:
            covered = min(covered, devices * seconds)
        return busy(total / count / metric.divisor, covered), covered


def stands_for(count: int, interval: int, seconds: int) -> int:
    """Of so many seconds, those that samples cover. What one scrape would fill is no hole: it is where scrapes fall."""
    covered = count * interval
    return seconds if covered + interval >= seconds else covered


def busy(part: Decimal, covered: int) -> Decimal:
    """Device-seconds of work. DCGM counts ratios a little above 1 at times: nothing works longer than it is there."""
    exact = min(part, ONE) * covered
    return Decimal(int(exact.scaleb(PLACES) + HALF)).scaleb(-PLACES)


class ByParts(Iterator[Read]):
    """Some hours at a time; halves where the server finds that too much, down to one.

    The first are begun at once, and those that follow are read while what came before is made use of.
    """

    def __init__(self, client: PrometheusClient, hours: range, read: Callable[[range], Read]) -> None:
        self._hours = hours
        self._read = read
        self._size = HOURS_AT_ONCE * HOUR
        self._ahead = client.threads(1)
        self._begin(hours.start)

    def __next__(self) -> Read:
        while self._part:
            try:
                result = self._coming.result()
            except (TooMuchError, TooLargeError):
                if len(self._part) == 1:
                    raise
                self._size = len(self._part) // 2 * HOUR
                self._begin(self._part.start)
                continue
            self._begin(self._part.stop)
            return result
        raise StopIteration

    def _begin(self, at: int) -> None:
        self._part = range(at, min(at + self._size, self._hours.stop), HOUR)
        if self._part:
            self._coming = self._ahead.submit(self._read, self._part)
