"""What a cluster has to give: each node's GPUs and their state, as intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Max, Sum

from clusters import ledger
from clusters.connectors.base import NodeSeen
from clusters.models import CapacityInterval, CapacityState, Cluster


class CapacityError(Exception):
    """An observation cannot be taken; the message is a sentence. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class ModelCapacity:
    """GPUs of one model now, by the state of their nodes."""

    gpu_model: str
    up: int
    drained: int
    down: int

    @property
    def total(self) -> int:
        return self.up + self.drained + self.down


@transaction.atomic
def observe(cluster: Cluster, nodes: Iterable[NodeSeen], moment: datetime) -> int:
    """Nodes were so at `moment`: close the intervals that this ends, open those that it begins; how many.

    The same again writes nothing. A node that is not told any more is gone: its interval is closed. Raises
    CapacityError for a moment before the newest one that an interval begins or ends with.
    """
    ledger.lock(cluster)
    second = int(moment.timestamp())
    _refuse_earlier(cluster, second)
    observed = _by_place(nodes)
    open_rows = CapacityInterval.objects.filter(cluster=cluster, until=None)
    current = {(row.node, row.gpu_model): row for row in open_rows}
    ended = [
        row for place, row in current.items() if observed.get(place) != (row.gpus, CapacityState(row.state))
    ]
    # Seen twice in one second, what came last holds: an interval without length would say nothing.
    empty = [row.pk for row in ended if row.since == second]
    CapacityInterval.objects.filter(pk__in=empty).delete()
    CapacityInterval.objects.filter(pk__in=[row.pk for row in ended if row.since < second]).update(
        until=second
    )
    changed = {(row.node, row.gpu_model) for row in ended}
    begun = [
        CapacityInterval(
            cluster=cluster, node=place[0], gpu_model=place[1], gpus=gpus, state=state, since=second
        )
        for place, (gpus, state) in observed.items()
        if place not in current or place in changed
    ]
    CapacityInterval.objects.bulk_create(begun)
    return len(ended) + len(begun)


def now(cluster: Cluster) -> list[ModelCapacity]:
    """GPUs by model and state, as they were last observed. One query."""
    rows = (
        CapacityInterval.objects.filter(cluster=cluster, until=None)
        .values_list("gpu_model", "state")
        .annotate(count=Sum("gpus"))
    )
    counts = {(model, state): int(count) for model, state, count in rows}
    return [
        ModelCapacity(model, *(counts.get((model, state), 0) for state in CapacityState.values))
        for model in sorted({model for model, _ in counts})
    ]


def _refuse_earlier(cluster: Cluster, second: int) -> None:
    newest = CapacityInterval.objects.filter(cluster=cluster).aggregate(
        since=Max("since"), until=Max("until")
    )
    latest = max((at for at in newest.values() if at is not None), default=0)
    if second < latest:
        raise CapacityError(
            f"The nodes of {cluster.name} were seen {latest - second} s later than this already; "
            f"check this machine's clock."
        )


def _by_place(nodes: Iterable[NodeSeen]) -> dict[tuple[str, str], tuple[int, CapacityState]]:
    """By node and model; what is told of one place in parts adds up, in the state of its last part."""
    places: dict[tuple[str, str], tuple[int, CapacityState]] = {}
    for node in nodes:
        place = node.name[:255], node.gpu_model[:255]
        before = places[place][0] if place in places else 0
        if before + node.gpus > 0:
            places[place] = before + node.gpus, CapacityState(node.state.value)
    return places
