"""Capacity of a cluster's nodes compared with what was allocated, and notes where the two differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from fractions import Fraction

from billing.reports.shapes import Capacity, ModelCapacity, Nodes
from billing.rules.money import rounded_text
from clusters import usage_reports
from clusters.models import CapacityState, Cluster
from clusters.usage_reports import Span

UNKNOWN = (
    "The capacity in this period is unknown, so idle GPUs are not shown. A connected cluster records its capacity from "
    "the first sync on; for file import, declare the nodes."
)


def capacity_of(cluster: Cluster, *, since: int, until: int) -> Capacity | None:
    """Of [since, until), epoch seconds, what is known; None where nothing is. Six queries."""
    had = usage_reports.had(cluster, since=since, until=until)
    if had is None:
        return None
    allocated = usage_reports.allocated(cluster, since=had.since, until=had.until)
    waited = usage_reports.idle_while_waiting(cluster, had)
    seconds = had.seconds
    names = sorted({model for model, _ in seconds} | allocated.keys())
    return Capacity(
        had.since,
        had.until,
        tuple(
            ModelCapacity(
                name,
                down=Fraction(seconds.get((name, CapacityState.DOWN), 0)),
                drained=Fraction(seconds.get((name, CapacityState.DRAINED), 0)),
                up=Fraction(seconds.get((name, CapacityState.UP), 0)),
                allocated=allocated.get(name, Fraction(0)),
                waited=waited.get(name, Fraction(0)),
            )
            for name in names
        ),
        _together(had.spans),
    )


def _together(spans: Iterable[Span]) -> tuple[Nodes, ...]:
    """Of many nodes that came and went together one row."""
    gpus: dict[tuple[str, int, int], int] = defaultdict(int)
    for span in spans:
        gpus[span.gpu_model, span.since, span.until] += span.gpus
    return tuple(Nodes(model, count, since, until) for (model, since, until), count in sorted(gpus.items()))


def doubts(capacity: Capacity | None, *, since: int, until: int) -> list[str]:
    """Sentences: what of the period is not covered, and where more was held than the nodes had."""
    if capacity is None:
        return [UNKNOWN]
    notes = []
    if (capacity.since, capacity.until) != (since, until):
        notes.append(
            f"Capacity is known only from {_moment(capacity.since)} to {_moment(capacity.until)}; its figures cover "
            "that part."
        )
    notes += [
        f"{_hours(-of.idle)} more GPU-hours of {of.gpu_model or 'an unknown model'} were allocated than its nodes had "
        "up: nodes changed between two syncs, or the model has two names."
        for of in capacity.models
        if of.idle < 0
    ]
    return notes


def _moment(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M} UTC"


def _hours(seconds: Fraction) -> str:
    return rounded_text(seconds / 3600, 2)
