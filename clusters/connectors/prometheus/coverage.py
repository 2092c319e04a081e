"""When kube-state-metrics was being read: what was not seen then has not been disproved.

Exporters of one job may share the cluster's pods among them: while one is away, its part is not seen by the others.
Nothing says whether several are shards, each with a part, or replicas with all of it. What the others report does: of
replicas, and after a rollout, somebody goes on to report the pods that the missing one reported."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import TypeVar

from clusters.connectors import clocks
from clusters.connectors.base import IncompleteHour
from clusters.connectors.http import TooLargeError
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.queries import NODE_INFO, POD_INFO, Queries, alternatives, equal, span
from clusters.connectors.prometheus.responses import Series, TooMuchError

HOUR = 3600
MINUTE = 60
POINTS = 10_000  # of a series in one answer; 11,000 are given


@dataclass(frozen=True, slots=True)
class Coverage:
    """Instants, in milliseconds and in order, at which kube-state-metrics was read, and their usual distance."""

    scrapes: Sequence[int]
    interval: int

    def without(self, spans: Sequence[tuple[int, int]]) -> Coverage:
        """As if nothing had been read within those times, in milliseconds."""
        if not spans:
            return self
        left = [at for at in self.scrapes if not any(begin < at < end for begin, end in spans)]
        return Coverage(left, self.interval)

    def last(self, until: int) -> int | None:
        """The last scrape at or before an epoch second, in milliseconds."""
        at = bisect_right(self.scrapes, until * 1000)
        return self.scrapes[at - 1] if at else None

    def unseen_after(self, moment: int) -> int | None:
        """Seconds from a pod's last sample, at `moment` in milliseconds, to the scrape after a gap; None without one.

        A gap counts that begins before the next sample was due: the exporter may be several, each with its part of
        the pods.
        """
        at = bisect_left(self.scrapes, moment + self.interval * 9 // 10)
        if not 0 < at < len(self.scrapes):
            return None
        before, after = self.scrapes[at - 1], self.scrapes[at]
        return (after - moment) // 1000 if after - before > MISSED * self.interval else None

    def gaps(self, since: int, until: int) -> list[tuple[int, int]]:
        """Times of [since, until) in which nothing was seen, in whole epoch seconds."""
        low, high = bisect_left(self.scrapes, since * 1000), bisect_left(self.scrapes, until * 1000)
        instants = (since * 1000 - self.interval, *self.scrapes[low:high], until * 1000)
        gaps = []
        for before, after in pairwise(instants):
            if after - before > MISSED * self.interval:
                gaps.append((max((before + self.interval) // 1000, since), after // 1000))
        return gaps


def incomplete_hours(gaps: Sequence[tuple[int, int]], since: int, until: int) -> list[IncompleteHour]:
    """The hours of [since, until) that have a gap, in order."""
    missing: dict[int, int] = {}
    for begin, end in gaps:
        for hour in range(begin - begin % HOUR, end, HOUR):
            missing[hour] = missing.get(hour, 0) + min(end, hour + HOUR) - max(begin, hour)
    hours = []
    for hour, unseen in sorted(missing.items()):
        read = min(until, hour + HOUR) - max(since, hour)
        hours.append(IncompleteHour(hour, read, max(read - unseen, 0)))
    return hours


def merged(some: Sequence[IncompleteHour], others: Sequence[IncompleteHour]) -> list[IncompleteHour]:
    """Of an hour that both did not see all of, as little as either saw."""
    hours = {hour.begins: hour for hour in some}
    for other in others:
        one = hours.get(other.begins, other)
        read = max(one.read, other.read)
        unseen = max(one.read - one.covered, other.read - other.covered)
        hours[other.begins] = IncompleteHour(other.begins, read, read - unseen)
    return [hour for _, hour in sorted(hours.items())]


def whole_hours(since: int, until: int) -> range:
    """The begins of the hours of UTC that end in (since, until]."""
    return range(since - since % HOUR, until - until % HOUR, HOUR)


def watch(client: PrometheusClient, queries: Queries, *, since: int, until: int) -> Coverage:
    """When kube-state-metrics was read in [since, until): by its `up`, else by the minutes that have its series."""
    seconds = until - since
    jobs = set()
    for metric in (NODE_INFO, POD_INFO):
        series = client.instant(
            f"count by (job) (count_over_time({queries.selector(metric)}[{span(seconds)}]))", until
        )
        jobs = {one.metric.get("job", "") for one in series}
        if jobs:
            break
    if not jobs:
        return Coverage((), MINUTE * 1000)
    if "" not in jobs:
        up = queries.selector("up", f'job=~"{alternatives(sorted(jobs))}"')
        series = client.instant(f"{up}[{span(seconds)}]", until)
        scrapes = _of_up(series)
        if scrapes.scrapes:
            away = shard_outages(client, queries, targets(series), scrapes.interval, since=since, until=until)
            return scrapes.without(away)
    return of_minutes(client, queries.selector(metric), since, until)


def _of_up(series: Sequence[Series]) -> Coverage:
    good: set[int] = set()
    steps: list[int] = []
    for one in series:
        instants = [int(at * 1000) for at, _ in one.values]
        good.update(at for at, (_, value) in zip(instants, one.values, strict=True) if value == 1)
        steps += [after - before for before, after in pairwise(instants)]
    return Coverage(sorted(good), median_low(steps) if steps else MINUTE * 1000)


def of_minutes(client: PrometheusClient, selector: str, since: int, until: int) -> Coverage:
    """Where `up` was not kept. Two minutes are looked over, so that scrapes a minute apart leave no holes; what was
    seen in them counts as seen when they began, for nothing is proved from when on."""
    query = f"count(count_over_time({selector}[{span(2 * MINUTE)}]))"
    instants: set[int] = set()
    for start in range(since + MINUTE, until + 1, POINTS * MINUTE):
        end = min(start + (POINTS - 1) * MINUTE, until)
        for one in client.range(query, start=start, end=end, step=MINUTE):
            instants.update(int((at - 2 * MINUTE) * 1000) for at, _ in one.values)
    return Coverage(sorted(instants), MINUTE * 1000)


def utc(second: int) -> str:
    """`2025-03-01 15:05 UTC`."""
    return clocks.utc(second, clocks.MINUTES)


Result = TypeVar("Result")

OUTAGE_MARGIN = 600  # seconds beside an outage of a target in which pods are looked for
FAR = 3 * 24 * 3600  # seconds before a window in which pods may have been told of that nobody tells of in it
SAMPLED_PODS = 100  # of its pods
MISSED = 3  # intervals without a scrape that make a gap: a rollout of the exporter takes two and a half


@dataclass(frozen=True, slots=True)
class Target:
    """One scraped endpoint: its labels, and the instants in milliseconds at which it answered."""

    job: str
    instance: str
    good: Sequence[int]


def targets(series: Sequence[Series]) -> list[Target]:
    """From samples of `up`."""
    instants: dict[tuple[str, str], list[int]] = {}
    for one in series:
        good = instants.setdefault((one.metric.get("job", ""), one.metric.get("instance", "")), [])
        good += [int(at * 1000) for at, value in one.values if value == 1]
    return [Target(*place, sorted(set(good))) for place, good in sorted(instants.items())]


def shard_outages(
    client: PrometheusClient,
    queries: Queries,
    among: Sequence[Target],
    interval: int,
    *,
    since: int,
    until: int,
) -> list[tuple[int, int]]:
    """Times, in milliseconds, in which a shard was away. `interval` too; [since, until) in epoch seconds."""
    look = _Look(client, queries, interval)
    outages = []
    for target in among if len(among) > 1 else ():
        instants = (*(target.good or (since * 1000,)), until * 1000)
        for begin, end in pairwise(instants):
            if end - begin > MISSED * interval and look.left(target, begin, end):
                outages.append((begin, end))
        if target.good and target.good[0] - since * 1000 > MISSED * interval and look.came(target, since):
            outages.append((since * 1000, target.good[0]))
    return outages


@dataclass(frozen=True, slots=True)
class _Look:
    """Asks after a few of a target's pods. Instants are milliseconds."""

    client: PrometheusClient
    queries: Queries
    interval: int

    def left(self, target: Target, begin: int, end: int) -> bool:
        """Whether nobody tells of the pods, from `begin` on, that it told of before."""
        at = -(-begin // 1000)
        uids = _far(lambda seconds: self._pods(target, at, OUTAGE_MARGIN if target.good else seconds))
        return bool(uids) and not self._is_reported(uids, begin, end)

    def came(self, target: Target, since: int) -> bool:
        """Whether it began with pods that were there before the epoch second `since`, and nobody told of since."""
        begun = target.good[0]
        uids = self._pods(target, begun // 1000 + OUTAGE_MARGIN, OUTAGE_MARGIN)
        existed = bool(uids) and _far(lambda seconds: self._any(uids, since, seconds))
        return existed and not self._is_reported(uids, since * 1000, begun)

    def _pods(self, target: Target, at: int, seconds: int) -> list[str]:
        matchers = equal("job", target.job), equal("instance", target.instance)
        series = self.queries.selector(POD_INFO, *matchers)
        rows = self.client.instant(f"count by (uid) (count_over_time({series}[{span(seconds)}]))", at)
        return sorted(one.metric["uid"] for one in rows if one.metric.get("uid"))[:SAMPLED_PODS]

    def _is_reported(self, uids: Sequence[str], begin: int, end: int) -> bool:
        first = (begin + self.interval * 3 // 2) // 1000
        last = min((end - self.interval // 2) // 1000, first + OUTAGE_MARGIN)
        return self._any(uids, last, max(last - first, 1))

    def _any(self, uids: Sequence[str], at: int, seconds: int) -> bool:
        series = self.queries.of(uids).pod(POD_INFO)
        return bool(self.client.instant(f"count(count_over_time({series}[{span(seconds)}]))", at))


def _far(ask: Callable[[int], Result]) -> Result:
    """So many seconds back as the server lets us look."""
    seconds = FAR
    while True:
        try:
            return ask(seconds)
        except (TooMuchError, TooLargeError):
            seconds //= 2
            if seconds < OUTAGE_MARGIN:
                raise
