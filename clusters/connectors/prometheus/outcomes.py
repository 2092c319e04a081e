"""How a pod ended, beyond its phase: lost with its node, evicted, preempted, killed for its memory.

By the published definitions of kube-state-metrics (docs/metrics/workload/pod-metrics.md): `kube_pod_status_reason`,
`kube_pod_container_status_terminated_reason` and `kube_pod_container_status_last_terminated_reason`, each 1 for the
`reason` that holds. What Kueue did comes by a configuration of kube-state-metrics that the operators' documentation
gives: of each workload the seconds since 1970 at which a condition turned. Not yet seen from a live source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.lifecycle import FAILED, SUCCEEDED, Life, Window
from clusters.connectors.prometheus.pod_jobs import Owner
from clusters.connectors.prometheus.queries import (
    LAST_TERMINATED_REASON,
    STATUS_REASON,
    TERMINATED_REASON,
    WORKLOAD_CONDITION,
    Queries,
    parts,
)
from clusters.connectors.prometheus.responses import Series, first

POD_REASONS = ("NodeLost", "Shutdown", "Evicted", "NodeAffinity", "UnexpectedAdmissionError")
"""The words of a pod's own status; where it had several, the first of these."""

CONTAINER_REASONS = ("OOMKilled", "Evicted", "DeadlineExceeded", "ContainerCannotRun")
"""Of its containers; `Completed` and `Error` say no more than the phase does."""

EVICTED = "Evicted"
WORKLOAD_REASONS: Mapping[str, str] = {"Preempted": "Preempted", "NodeFailures": "NodeLost"}
"""Of Kueue's condition `Evicted`, as pods have them; for all other reasons it is `Evicted`."""

STEP = 600  # seconds in which the newest eviction of a workload counts


@dataclass(frozen=True, slots=True)
class Eviction:
    at: int  # epoch second
    reason: str


def outcomes(
    client: PrometheusClient,
    queries: Queries,
    window: Window,
    lives: Mapping[str, Life],
    owners: Mapping[str, Sequence[Owner]],
) -> dict[str, str]:
    """By uid the word for how a pod ended, if there is more than its phase. `owners`: what Kueue may call the pod by:
    itself, and what made it.

    Raises `ConnectorError`. A pod that succeeded is not asked after.
    """
    ended = {uid: life for uid, life in lives.items() if life.ended is not None and life.state != SUCCEEDED}
    words = _reasons(client, queries, window, STATUS_REASON, POD_REASONS, sorted(ended))
    left = {uid: life for uid, life in ended.items() if uid not in words}
    words |= _evicted(client, queries, window, left, owners)
    for metric in (TERMINATED_REASON, LAST_TERMINATED_REASON):
        failed = sorted(uid for uid, life in left.items() if life.state == FAILED and uid not in words)
        words |= _reasons(client, queries, window, metric, CONTAINER_REASONS, failed)
    return words


def _reasons(
    client: PrometheusClient,
    queries: Queries,
    window: Window,
    metric: str,
    reasons: Sequence[str],
    uids: Sequence[str],
) -> dict[str, str]:
    if not uids or not client.instant(queries.any(metric, window.length), window.at):
        return {}
    asking = [
        partial(client.instant, queries.of(some).reasons(metric, reasons, window.length), window.at)
        for some in parts(uids)
    ]
    words: dict[str, str] = {}
    for one in chain.from_iterable(client.together(asking)):
        uid, reason = one.metric.get("uid", ""), one.metric.get("reason", "")
        if reason in reasons:
            words[uid] = min(words.get(uid, reason), reason, key=reasons.index)
    return words


def _evicted(
    client: PrometheusClient,
    queries: Queries,
    window: Window,
    lives: Mapping[str, Life],
    owners: Mapping[str, Sequence[Owner]],
) -> dict[str, str]:
    """Pods that held their devices when Kueue evicted the workload of what made them, which ends them all."""
    names = sorted({owner.name for uid in lives for owner in owners.get(uid, ())})
    if not names or not client.instant(queries.any(WORKLOAD_CONDITION, window.length), window.at):
        return {}
    steps = -(-window.length // STEP)
    asking = [
        partial(
            client.range,
            queries.evictions(some, STEP),
            start=window.at - (steps - 1) * STEP,
            end=window.at,
            step=STEP,
        )
        for some in parts(names)
    ]
    evictions = _by_owner(chain.from_iterable(client.together(asking)), queries)
    slack = -(-window.coverage.interval // 1000)  # a pod's last sample is up to that much before its end
    words: dict[str, str] = {}
    for uid, life in lives.items():
        theirs = [one for owner in owners.get(uid, ()) for one in evictions.get(owner, ())]
        within = [one for one in theirs if life.started <= one.at <= (life.ended or 0) + slack]
        if within:
            last = max(within, key=lambda one: (one.at, one.reason))
            words[uid] = WORKLOAD_REASONS.get(last.reason, EVICTED)
    return words


def _by_owner(series: Iterable[Series], queries: Queries) -> dict[Owner, set[Eviction]]:
    spellings = queries.options.labels.spellings("namespace")
    evictions: dict[Owner, set[Eviction]] = {}
    for one in series:
        owner = Owner(
            first(one.metric, spellings),
            one.metric.get("owner_kind", ""),
            one.metric.get("owner_name", ""),
        )
        reason = one.metric.get("reason", "")
        evictions.setdefault(owner, set()).update(Eviction(int(value), reason) for _, value in one.values)
    return evictions
