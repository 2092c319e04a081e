"""What counters grew by, from sample to sample: exact, whichever observer read them, however often they were reset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clusters.connectors.prometheus.coverage import HOUR, Coverage
from clusters.connectors.prometheus.responses import Labels, Series, usual_step

OBSERVER = ("job", "service", "endpoint", "prometheus", "prometheus_replica", "replica")
"""Labels of the observer: a server that two jobs or two replicas of Prometheus scrape is there twice."""

Observer = tuple[str, ...]
"""What those labels say."""

Points = list[tuple[int, int]]
"""Milliseconds of the epoch, and the value; in order."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter of one server. `named`: what the labels of the connection's choice say; `rest`: all others."""

    named: tuple[str, ...]
    instance: str
    rest: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Samples:
    """What the best of its observers saw of a counter in one hour. `ends`: the last sample of each, milliseconds."""

    observer: Observer
    points: Points
    ends: dict[Observer, int]


@dataclass(slots=True)
class _Stand:
    """The last sample of a counter."""

    observer: Observer
    at: int
    value: int
    ends: Mapping[Observer, int]


@dataclass(frozen=True, slots=True)
class Scraped:
    """By server: when it was read, when in vain, and when its process began, as it says. Milliseconds.

    `by_observer`: when each of its observers read a server.
    """

    good: Mapping[str, Sequence[int]] = field(default_factory=dict)
    vain: Mapping[str, Sequence[int]] = field(default_factory=dict)
    began: Mapping[str, Points] = field(default_factory=dict)
    interval: int = 60_000
    by_observer: Mapping[tuple[str, Observer], Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, up: Sequence[Series], began: Sequence[Series] = ()) -> Scraped:
        """From samples of `up` and of `process_start_time_seconds`."""
        good: dict[str, set[int]] = {}
        vain: dict[str, set[int]] = {}
        by_observer: dict[tuple[str, Observer], set[int]] = {}
        for one in up:
            theirs = by_observer.setdefault((one.metric.get("instance", ""), observer_of(one.metric)), set())
            theirs.update(int(at * 1000) for at, value in one.values if value == 1)
            for at, value in one.values:
                target = good if value == 1 else vain
                target.setdefault(one.metric.get("instance", ""), set()).add(int(at * 1000))
        starts: dict[str, Points] = {}
        for one in began:
            points = starts.setdefault(one.metric.get("instance", ""), [])
            points += [(int(at * 1000), int(value * 1000)) for at, value in one.values if value.is_finite()]
        return cls(
            {name: sorted(at) for name, at in good.items()},
            {name: sorted(at) for name, at in vain.items()},
            {name: sorted(points) for name, points in starts.items()},
            (usual_step(one.values for one in up) or 60) * 1000,
            {key: sorted(at) for key, at in by_observer.items()},
        )

    def before(self, instance: str, observer: Observer, at: int) -> int | None:
        """When the server was read last before that sample: by its observer, or by any if `up` has not that one."""
        times = self.by_observer.get((instance, observer)) or self.good.get(instance, ())
        place = bisect_left(times, at)
        return times[place - 1] if place else None

    def process(self, instance: str, at: int) -> int | None:
        """When the process began that answered then."""
        points = self.began.get(instance, [])
        place = bisect_right(points, at, key=lambda point: point[0])
        return points[place - 1][1] if place else None

    def unanswered(self, instances: Collection[str], hour: int) -> int:
        """The most seconds of the hour in which one of these servers, though looked for, did not answer."""
        most = 0
        for instance in instances:
            vain = self.vain.get(instance, ())
            if vain:
                gaps = Coverage(self.good.get(instance, ()), self.interval).gaps(hour, hour + HOUR)
                lost = sum(end - begin for begin, end in gaps if _any_in(vain, begin * 1000, end * 1000))
                most = max(most, lost)
        return most


def observer_of(labels: Labels) -> Observer:
    """Who read a series."""
    return tuple(labels.get(name, "") for name in OBSERVER)


class Counters:
    """The counters of one metric as hour after hour is taken in. `named` gives the labels that matter."""

    def __init__(self, named: Callable[[Labels], tuple[str, ...]]) -> None:
        self._named = named
        self._stands: dict[Counter, _Stand] = {}

    @property
    def jobs(self) -> set[str]:
        return {stand.observer[0] for stand in self._stands.values()}

    @property
    def instances(self) -> set[str]:
        """The servers that count something."""
        return {counter.instance for counter in self._stands}

    def forget(self, *, before: int) -> None:
        """Those of which nothing was seen since that epoch second: whatever comes of them is new."""
        self._stands = {counter: stand for counter, stand in self._stands.items() if stand.at > before * 1000}

    def take(self, series: Sequence[Series]) -> dict[Counter, Samples]:
        """Each counter once, by the observer with the most samples."""
        samples: dict[Counter, Samples] = {}
        for one in series:
            observer = observer_of(one.metric)
            rest = frozenset(
                (name, text)
                for name, text in one.metric.items()
                if name not in OBSERVER and name != "__name__"
            )
            counter = Counter(self._named(one.metric), one.metric.get("instance", ""), rest)
            points = [
                (int(at * 1000), int(value)) for at, value in one.values if value.is_finite() and value >= 0
            ]
            if not points:
                continue
            other = samples.get(counter)
            ends = {**(other.ends if other else {}), observer: points[-1][0]}
            if other is None or (len(other.points), observer) < (len(points), other.observer):
                samples[counter] = Samples(observer, points, ends)
            else:
                samples[counter] = Samples(other.observer, other.points, ends)
        return samples

    def fresh(self, samples: Mapping[Counter, Samples]) -> list[Counter]:
        """Those of which no earlier sample is known."""
        return [counter for counter in samples if counter not in self._stands]

    def grow(
        self, samples: Mapping[Counter, Samples], scraped: Scraped
    ) -> Iterator[tuple[Counter, int, bool]]:
        """What each grew by, and whether it began in the dark, so that its first value does not count."""
        last = {counter: stand.ends for counter, stand in self._stands.items()}
        last |= {counter: {**last.get(counter, {}), **one.ends} for counter, one in samples.items()}
        for counter, one in samples.items():
            stand = self._stands.get(counter)
            is_new = stand is None and self._began_at_zero(counter, one, scraped, last)
            value = 0 if stand is None else stand.value
            grown = 0
            for number, (_, at_value) in enumerate(one.points):
                if number == 0 and (stand.observer != one.observer if stand else not is_new):
                    # Another's clock may be a little behind, which is no new beginning.
                    grown += max(at_value - value, 0) if stand else 0
                else:
                    grown += at_value - value if at_value >= value else at_value
                value = at_value
            yield counter, grown, stand is None and not is_new
            self._stands[counter] = _Stand(one.observer, one.points[-1][0], value, last[counter])

    def _began_at_zero(
        self, counter: Counter, one: Samples, scraped: Scraped, last: Mapping[Counter, Mapping[Observer, int]]
    ) -> bool:
        """Whether all that it says was counted since its observer last read the server."""
        first = one.points[0][0]
        before = scraped.before(counter.instance, one.observer, first)
        process = scraped.process(counter.instance, first)
        if before is None:
            return process is not None and first - HOUR * 1000 <= process <= first
        if process is not None and process > before:
            return True
        ended = (
            other.instance == counter.instance and before <= ends.get(one.observer, 0) < first
            for other, ends in last.items()
        )
        return not any(ended)  # else its labels were changed: it was counted under others


def _any_in(times: Sequence[int], begin: int, end: int) -> bool:
    place = bisect_left(times, begin)
    return place < len(times) and times[place] < end
