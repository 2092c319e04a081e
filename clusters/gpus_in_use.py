"""How much of a cluster is in use now: the GPUs that running jobs hold, of those of nodes that are up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from fractions import Fraction

from django.db.models import F, Sum

from clusters.models import CapacityInterval, CapacityState, UsageRecord


def load_demand(
    clusters: Collection[int], *, freed: Mapping[int, Fraction] | None = None
) -> dict[int, Fraction]:
    """By cluster percent, as it was read last; without those of which no GPU is known to be up. Two queries.

    `freed`: GPUs of jobs that were ended since. A MIG slice counts as its part of a GPU; a suspended job, and one that
    its scheduler no longer knows, holds nothing. Nobody knows which jobs hold GPUs of a node that is being drained: all
    of them are taken to be held, so that what is in use of the rest is never too much.
    """
    states = CapacityState.UP, CapacityState.DRAINED
    capacities = CapacityInterval.objects.filter(
        cluster__in=clusters, until=None, state__in=states, gpus__gt=0
    )
    counts = capacities.values_list("cluster", "state").annotate(sum=Sum("gpus")).order_by("cluster", "state")
    sums_of_nodes = {(cluster, state): count for cluster, state, count in counts}
    gpus = {cluster: count for (cluster, state), count in sums_of_nodes.items() if state == CapacityState.UP}
    runs = UsageRecord.objects.filter(
        cluster__in=gpus, ended=None, started__isnull=False, gpus__gt=0, vanished=None
    ).exclude(state="SUSPENDED")
    held: dict[int, Fraction] = defaultdict(Fraction)
    sums = runs.values_list("cluster", "share_den").annotate(sum=Sum(F("gpus") * F("share_num")))
    for cluster, share_den, amount in sums.order_by("cluster", "share_den"):
        held[cluster] += Fraction(int(amount), share_den)
    for cluster, count in (freed or {}).items():
        held[cluster] -= count
    for cluster in gpus:
        held[cluster] -= sums_of_nodes.get((cluster, CapacityState.DRAINED), 0)
    return {cluster: max(held[cluster], Fraction(0)) * 100 / count for cluster, count in gpus.items()}
