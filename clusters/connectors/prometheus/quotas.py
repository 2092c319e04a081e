"""GPUs that queues of Kueue held above their nominal quota, as its own gauges tell it, minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from clusters.connectors.base import ConnectorError
from clusters.connectors.prometheus.catalog import QUEUES, Preset
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import MINUTE, POINTS
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.queries import Queries
from clusters.connectors.prometheus.responses import whole

KUEUE = QUEUES[Preset.KUEUE]
NOMINAL = "kueue_cluster_queue_nominal_quota"

Place = tuple[str, int]
"""A cluster queue, and a minute's end."""


@dataclass(frozen=True, slots=True)
class QuotaExcess:
    """A cluster queue held so many GPUs above its nominal quota in [since, until), epoch seconds.

    Flavors count each for itself and add up: what one of them leaves is not what another may take.
    """

    queue: str
    since: int
    until: int
    gpus: int


def above_quota(
    client: PrometheusClient, options: PrometheusOptions, *, since: int, until: int
) -> list[QuotaExcess]:
    """By queue and in order of time, also where it is 0; what neither gauge tells of is left out.

    A minute counts as the gauges stood at its end. Raises `ConnectorError`, also where there is no quota at all.
    """
    queries = Queries(options)
    above: dict[Place, int] = {}
    begin = since - since % MINUTE
    while begin < until:
        end = min(begin + POINTS * MINUTE, until + -until % MINUTE)
        nominal = _gauge(client, queries.selector(NOMINAL, KUEUE.where), begin, end)
        used = _gauge(client, queries.selector(KUEUE.gauge, KUEUE.where), begin, end)
        for (queue, flavor, at), quota in nominal.items():
            more = max(used.get((queue, flavor, at), 0) - quota, 0)
            above[queue, at] = above.get((queue, at), 0) + more
        begin = end
    if not above:
        raise ConnectorError("kueue-no-quota", retry=False, address=client.http.address, metric=NOMINAL)
    return list(_joined(above, since, until))


def _gauge(client: PrometheusClient, selector: str, begin: int, end: int) -> dict[tuple[str, str, int], int]:
    """By queue, flavor and minute's end. Replicas of the exporter, and a queue's cohorts, tell the same."""
    query = f"max by ({KUEUE.name},flavor) ({selector})"
    counts = {}
    for one in client.range(query, start=begin + MINUTE, end=end, step=MINUTE):
        place = one.metric.get(KUEUE.name, ""), one.metric.get("flavor", "")
        for at, value in one.values:
            count = whole(value)
            if count is not None and count >= 0:
                counts[*place, int(at)] = count
    return counts


def _joined(above: dict[Place, int], since: int, until: int) -> Iterator[QuotaExcess]:
    """Minutes of one queue that follow each other and tell the same are one."""
    minutes = enumerate(sorted((queue, at, gpus) for (queue, at), gpus in above.items()))
    for (queue, _, gpus), those in groupby(
        minutes, lambda one: (one[1][0], one[1][1] - one[0] * MINUTE, one[1][2])
    ):
        ends = [at for _, (_, at, _) in those]
        yield QuotaExcess(queue, max(ends[0] - MINUTE, since), min(ends[-1], until), gpus)
