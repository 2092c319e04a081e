"""Test connection, of a preset: whether its labels and its gauges are there, and what the gauges say now in GPUs."""

from __future__ import annotations

from fractions import Fraction

from clusters.connectors.prometheus import queries as metrics
from clusters.connectors.prometheus.answers import Series
from clusters.connectors.prometheus.presets import QUEUES, QueueSeries
from clusters.connectors.prometheus.session import CHECK_WINDOW, CheckSession


def queues(visit: CheckSession, subject: str) -> bool:
    """Bills come from pods; the gauges of queues are beside them, to compare."""
    preset = visit.queries.options.preset
    series = QUEUES.get(preset) if preset else None
    if series is None:
        return True
    usages = visit.client.instant(
        f"sum by ({series.name}) (max by ({series.by}) ({visit.queries.selector(series.gauge, series.where)}))",
        visit.now,
    )
    if not usages:
        visit.warn(
            subject,
            f"There is no {series.gauge}: bills do not need it, but nothing can be compared with them.",
            series.mend,
        )
        return True
    # A queue above others tells their GPUs over again, so only those that pods name are added up.
    leaves = _named_by_pods(visit, series)
    by_queue = {one.metric.get(series.name, ""): _gpus(one, series) for one in usages}
    below = {name: gpus for name, gpus in by_queue.items() if name in leaves}
    visit.ok(
        subject,
        f"{series.gauge} tells {_number(sum(below.values(), Fraction(0)))} GPUs in {len(below)} queues with pods, of "
        f"{len(by_queue)} queues.",
    )
    return True


def sampled(visit: CheckSession, subject: str) -> bool:
    """The gauge of what users hold, and what tells that the exporter is there at all."""
    series = visit.queries.options.sampled
    if series is None:
        return True
    users = visit.count(visit.queries.selector(series.metric))
    hosts = visit.count(visit.queries.selector(series.always))
    if users:
        visit.ok(subject, f"{series.metric} tells of {users:,} uses in the last hour.")
    elif hosts:
        visit.warn(subject, f"Nobody had {series.metric} in the last hour: right, if nobody used a GPU.")
    else:
        visit.fail(subject, f"There was no {series.metric} in the last hour.", series.mend)
    return True


def _named_by_pods(visit: CheckSession, series: QueueSeries) -> set[str]:
    """The queues of the last hour's pods."""
    names = set()
    for label in series.labels:
        selector = visit.queries.selector(metrics.POD_LABELS, f'{label}!=""')
        query = f"count by ({label}) (count_over_time({selector}[{metrics.span(CHECK_WINDOW)}]))"
        names |= {one.metric.get(label, "") for one in visit.client.instant(query, visit.now)}
    return names


def _gpus(one: Series, series: QueueSeries) -> Fraction:
    value = one.value[1] if one.value else None
    return Fraction(value) / series.per_gpu if value is not None and value.is_finite() else Fraction(0)


def _number(value: Fraction) -> str:
    if value.denominator == 1:
        return f"{value.numerator:,}"
    hundredths = (200 * value.numerator + value.denominator) // (2 * value.denominator)
    return f"{hundredths // 100:,}.{hundredths % 100:02}"
