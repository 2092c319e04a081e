"""How the tests read a Prometheus, and set what they read beside what really was."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from typing import Any

from clusters.connectors.base import UsageFact
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import PrometheusConnector, PrometheusLogin, PrometheusOptions

HOUR = 3600
ADMITTED = 1_772_600_000  # what our own clock says; nothing is decided by it


def connector(url: str, **options: Any) -> PrometheusConnector:
    return PrometheusConnector(
        Endpoint(base_url=url),
        login=PrometheusLogin(),
        options=PrometheusOptions(**options),
        clock=lambda: ADMITTED,
    )


def read(
    url: str, since: int, until: int, open_keys: Collection[str] = (), **options: Any
) -> tuple[list[UsageFact], PrometheusConnector]:
    """All facts of one pass; there are no bad rows."""
    source = connector(url, **options)
    rows = list(source.usage(since=since, until=until, open_keys=open_keys))
    facts = [row for row in rows if isinstance(row, UsageFact)]
    assert facts == rows
    return facts, source


def billable(truth: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods that held devices, or parts of them, for somebody."""
    return [
        pod
        for pod in truth["pods"]
        if pod["scheduled"] is not None and pod["namespace"] != "kai-resource-reservation"
    ]


def uid_of(fact: UsageFact) -> str:
    return fact.source_key.partition("/")[0]


def until_of(fact: UsageFact) -> int:
    """The second up to which it is billed."""
    until = fact.ended if fact.ended is not None else fact.seen_until
    assert until is not None
    return until


def gpu_seconds(fact: UsageFact) -> Fraction:
    """In devices, or parts of whole GPUs for fractions by annotation."""
    assert fact.started is not None
    share = Fraction(*fact.gpu_share) if fact.requested.startswith("gpu-") else Fraction(1)
    return (until_of(fact) - fact.started) * fact.gpus * share
