"""Metric families from plain values. The only place where exact amounts become floating point: the format has
nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

OTHER = "other"

Labels = tuple[str, ...]


def gauge(
    name: str, says: str, labels: Sequence[str], rows: Iterable[tuple[Labels, Fraction | float]]
) -> GaugeMetricFamily:
    """A gauge; each value is the double that is nearest to the exact one."""
    family = GaugeMetricFamily(name, says, labels=labels)
    for label_values, value in rows:
        family.add_metric(label_values, float(value))
    return family


def counter(
    name: str, says: str, labels: Sequence[str], rows: Iterable[tuple[Labels, int]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, says, labels=labels)
    for label_values, value in rows:
        family.add_metric(label_values, value)
    return family


def seconds_since(
    name: str, says: str, label: str, rows: Iterable[tuple[str, int | None]]
) -> GaugeMetricFamily:
    """A gauge of seconds since something; infinite where it never was, so that an alert on it goes off."""
    family = GaugeMetricFamily(name, says, labels=[label])
    for label_value, value in rows:
        family.add_metric([label_value], float("inf") if value is None else float(value))
    return family


def folded(rows: Mapping[Labels, Fraction], most: int, *, other: Labels) -> dict[Labels, Fraction]:
    """The `most` largest rows by themselves and the sum of all others as `other`: nothing is lost from the total."""
    totals: dict[Labels, Fraction] = defaultdict(Fraction)
    for place, labels in enumerate(sorted(rows, key=lambda labels: (-rows[labels], labels))):
        totals[labels if place < most else other] += rows[labels]
    return dict(totals)
