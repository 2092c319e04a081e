"""From samples of devices to device-seconds: which count, how long they stand for, and how much of it was work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from clusters.connectors.http import TooLargeError
from clusters.connectors.prometheus.answers import TooMuchError
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR
from clusters.connectors.prometheus.metrics import ONE, Metric
from clusters.connectors.prometheus.samples import Device, DeviceSeries, Tally

AT_ONCE = 6  # hours that one query answers for
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
        self._size = AT_ONCE * HOUR
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
