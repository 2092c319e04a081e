"""What else prices may select pods by, and when each was created."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from clusters.connectors.prometheus.answers import Series, whole
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.lifecycle import Life, Window, ask_of_pods
from clusters.connectors.prometheus.queries import CREATED, POD_INFO, QOS_CLASS, Queries


@dataclass(frozen=True, slots=True)
class Attributes:
    """By uid; a pod that nothing is told of is left out."""

    priority_classes: Mapping[str, str] = field(default_factory=dict)
    qos_classes: Mapping[str, str] = field(default_factory=dict)
    created: Mapping[str, int] = field(default_factory=dict)  # epoch seconds


def attributes_of(
    client: PrometheusClient, queries: Queries, window: Window, gate: str, lives: Mapping[str, Life]
) -> Attributes:
    """Raises `ConnectorError`. Series that nobody keeps are looked for once a window, not pod by pod."""
    ended = [uid for uid, life in lives.items() if life.ended is not None]

    def read(metric: str, ask: Callable[[Queries, str, int], str]) -> list[Series]:
        def rest(uids: Collection[str]) -> Sequence[str]:
            left = [uid for uid in ended if uid not in uids]
            is_exported = uids or not left or client.instant(queries.any(metric, window.length), window.at)
            return left if is_exported else ()

        return ask_of_pods(client, queries, window, gate, ask, rest)

    return Attributes(
        _texts(read(POD_INFO, Queries.priority_class), "priority_class"),
        _texts(read(QOS_CLASS, Queries.qos_class), "qos_class"),
        {
            one.metric.get("uid", ""): second
            for one in read(CREATED, lambda some, by, seconds: some.first(CREATED, by, seconds))
            if one.value is not None and (second := whole(one.value[1])) is not None and second > 0
        },
    )


def _texts(series: Sequence[Series], label: str) -> dict[str, str]:
    """Where several are told, in one order whichever way they come."""
    return dict(sorted((one.metric.get("uid", ""), one.metric.get(label, "")) for one in series))
