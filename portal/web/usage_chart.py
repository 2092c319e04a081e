"""The chart of an overview: use by day and project, in GPU-hours and in money, drawn by the server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction

from django.utils.translation import gettext as _

from billing.queries.overview import Overview
from billing.rules.money import Money, nearest
from billing.rules.rounded_sums import HOURS, rounded_parts, rounded_units
from portal.web import drawing
from portal.web import format as say
from portal.web.drawing import Column

HOUR = 3600
NAMED_DAYS = 5  # below the axis
Values = Mapping[tuple[int | None, date], Fraction]
"""By project, or None for all without a color of their own, and day."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A project, or all others: what it used on each day that has begun, as drawn and as text."""

    name: str
    is_other: bool
    values: Sequence[Fraction]
    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What was used of one kind: the series, what each day adds up to, and the drawing of it."""

    key: str
    label: str
    unit: str
    series: Sequence[Series]
    totals: Sequence[str]
    columns: Sequence[Column]  # of days with use
    ticks: Sequence[str]  # of the axis, from above


@dataclass(frozen=True, kw_only=True)
class UsageChart:
    """The days of a period, of which the first have begun, and each measure of them."""

    days: Sequence[str]
    axis: Sequence[str]  # a text for each day, most of them ""
    measures: Sequence[Measure]


def usage_chart(summary: Overview, *, today: date, spend_label: str, explorer: str) -> UsageChart:
    """Use by day and project, in GPU-hours and, where anything is charged, in money.

    `explorer`: the address of the cost explorer, to which each day leads.
    """
    days = [summary.first + timedelta(days=n) for n in range((summary.end - summary.first).days)]
    names: dict[int | None, str] = dict(summary.series)
    if any(day.project is None and day.day >= summary.first for day in summary.days):
        names[None] = _("Other")
    hours: dict[tuple[int | None, date], Fraction] = defaultdict(Fraction)
    spend: dict[tuple[int | None, date], Fraction] = defaultdict(Fraction)
    for used in summary.days:
        hours[used.project, used.day] += used.gpu_seconds / HOUR
        spend[used.project, used.day] += used.amount

    def amounts(values: Sequence[Fraction]) -> list[str]:
        total = Money(sum(values, Fraction(0)), summary.currency).rounded()
        return [say.money(money) for money in (*rounded_parts(values, total), total)]

    def gpu_hours(values: Sequence[Fraction]) -> list[str]:
        whole = sum(values, Fraction(0))
        total = nearest(whole * HOUR / HOURS)
        units = [*rounded_units([value * HOUR / HOURS for value in values], total), total]
        return [
            say.part_hours(one * HOURS, value * HOUR)
            for one, value in zip(units, (*values, whole), strict=True)
        ]

    label = _("GPU-hours")
    measures = [_measure("hours", label, label, gpu_hours, _tick, names, days, today, hours, explorer)]
    if summary.currency:
        symbol = say.symbol(summary.currency)
        spent = _measure(
            "spend",
            spend_label,
            summary.currency,
            amounts,
            lambda at: symbol + _tick(at),
            names,
            days,
            today,
            spend,
            explorer,
        )
        measures.append(spent)
    step = -(-len(days) // NAMED_DAYS)
    return UsageChart(
        days=[say.short_day(day) for day in days],
        axis=["" if number % step else say.short_day(day) for number, day in enumerate(days)],
        measures=measures,
    )


def _measure(
    key: str,
    label: str,
    unit: str,
    texts: Callable[[Sequence[Fraction]], list[str]],
    tick: Callable[[Fraction], str],
    names: Mapping[int | None, str],
    days: Sequence[date],
    today: date,
    values: Values,
    explorer: str,
) -> Measure:
    """Of the days that have begun; the drawing has room for those to come.

    `texts` has one for each series of a day and one for their sum, to which they add up as they are shown.
    """
    begun = [day for day in days if day <= today]
    rows = [texts([values[project, day] for project in names]) for day in begun]
    series = [
        Series(
            name=name,
            is_other=project is None,
            values=[values[project, day] for day in begun],
            texts=[row[place] for row in rows],
        )
        for place, (project, name) in enumerate(names.items())
    ]
    sums = [sum((values[project, day] for project in names), Fraction(0)) for day in begun]
    totals = [row[-1] for row in rows]
    top = drawing.axis_end(max(sums, default=Fraction(0)))
    stacks = drawing.stacks(
        [
            [(None if one.is_other else place, one.values[number]) for place, one in enumerate(series)]
            if number < len(begun)
            else []
            for number in range(len(days))
        ],
        top=top,
    )
    columns = [
        Column(
            title=_tooltip(say.short_day(day), unit, series, number, totals[number]),
            href=f"{explorer}?from={day}&through={day}",
            stack=stacks[number],
        )
        for number, day in enumerate(begun)
        if sums[number]
    ]
    return Measure(
        key=key,
        label=label,
        unit=unit,
        series=series,
        totals=totals,
        columns=columns,
        ticks=[tick(top), tick(top / 2), tick(Fraction(0))] if top else [],
    )


def _tooltip(day: str, unit: str, series: Sequence[Series], number: int, total: str) -> str:
    """What a pointer over a day shows: its parts from above, and their sum."""
    parts = [f"{one.name}: {one.texts[number]}" for one in series if one.values[number]]
    return "\n".join([f"{day} · {unit}", *reversed(parts), _("Total: {amount}").format(amount=total)])


def _tick(value: Fraction) -> str:
    """`4,000`, `0.05`: of an axis, which ends at a round number."""
    return say.fraction(value)
