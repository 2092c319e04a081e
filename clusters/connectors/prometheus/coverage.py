"""When kube-state-metrics was being read: what was not seen then has not been disproved."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median_low

from clusters.connectors.base import IncompleteHour
from clusters.connectors.prometheus.answers import Series
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.exporter_gaps import MISSED, shard_outages, targets
from clusters.connectors.prometheus.queries import NODE_INFO, POD_INFO, Queries, alternatives, span

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
    return _of_minutes(client, queries.selector(metric), since, until)


def _of_up(series: Sequence[Series]) -> Coverage:
    good: set[int] = set()
    steps: list[int] = []
    for one in series:
        instants = [int(at * 1000) for at, _ in one.values]
        good.update(at for at, (_, value) in zip(instants, one.values, strict=True) if value == 1)
        steps += [after - before for before, after in pairwise(instants)]
    return Coverage(sorted(good), median_low(steps) if steps else MINUTE * 1000)


def _of_minutes(client: PrometheusClient, selector: str, since: int, until: int) -> Coverage:
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
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M} UTC"
