"""What nodes had to give beside what was held of them, and in words where the two do not fit."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

from billing.reports.shapes import Capacity, ModelCapacity
from billing.rules.money import rounded_text
from clusters import usage_reports
from clusters.models import CapacityState, Cluster

UNKNOWN = (
    "What the nodes had to give in this period is not known, so idle GPUs cannot be told: passes over a live cluster "
    "keep it from the first one on, and for one that is read from files its nodes can be declared."
)


def capacity_of(cluster: Cluster, *, since: int, until: int) -> Capacity | None:
    """Of [since, until), epoch seconds, what is known; None where nothing is. Six queries."""
    had = usage_reports.had(cluster, since=since, until=until)
    if had is None:
        return None
    held = usage_reports.allocated(cluster, since=had.since, until=had.until)
    waited = usage_reports.idle_while_waiting(cluster, had)
    seconds = had.seconds
    names = sorted({model for model, _ in seconds} | held.keys())
    return Capacity(
        had.since,
        had.until,
        tuple(
            ModelCapacity(
                name,
                down=Fraction(seconds.get((name, CapacityState.DOWN), 0)),
                drained=Fraction(seconds.get((name, CapacityState.DRAINED), 0)),
                up=Fraction(seconds.get((name, CapacityState.UP), 0)),
                allocated=held.get(name, Fraction(0)),
                waited=waited.get(name, Fraction(0)),
            )
            for name in names
        ),
    )


def doubts(capacity: Capacity | None, *, since: int, until: int) -> list[str]:
    """Sentences: what of the period is not covered, and where more was held than the nodes had."""
    if capacity is None:
        return [UNKNOWN]
    told = []
    if (capacity.since, capacity.until) != (since, until):
        told.append(
            f"What the nodes had to give is known from {_moment(capacity.since)} to {_moment(capacity.until)} only; "
            "the figures of capacity are of that part."
        )
    told += [
        f"{_hours(-of.idle)} GPU-hours more of {of.gpu_model or 'an unnamed model'} were held than its nodes had up: "
        "nodes that were down, drained or changed between two passes, or a model that goes by two names."
        for of in capacity.models
        if of.idle < 0
    ]
    return told


def _moment(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M} UTC"


def _hours(seconds: Fraction) -> str:
    return rounded_text(seconds / 3600, 2)
