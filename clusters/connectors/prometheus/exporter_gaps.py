"""Exporters of one job that share the cluster's pods among them: while one is away, its part is not seen by the others.

Nothing says whether several are shards, each with a part, or replicas with all of it. What the others tell does: of
replicas, and after a rollout, somebody goes on to tell of the pods that the lost one told of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from clusters.connectors.http import TooLargeError
from clusters.connectors.prometheus.answers import Series, TooMuchError
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.queries import POD_INFO, Queries, equal, span

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
