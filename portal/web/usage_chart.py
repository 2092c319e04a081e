"""The chart of an overview: use by day and project, in GPU-hours and in money."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

from billing.queries.overview import Overview
from billing.rules.money import Money
from portal.web import format as say

HOUR = 3600
Values = Mapping[tuple[int | None, date], Fraction]
"""By project, or None for all without a color of their own, and day."""


def usage_chart(summary: Overview, *, today: date, spend_label: str) -> dict[str, Any]:
    """What chart.js reads from the page: the days, and each measure with its series.

    A series has for each day a plain decimal to draw and its text; both are "" for days to come.
    """
    days = [summary.first + timedelta(days=n) for n in range((summary.end - summary.first).days)]
    names: dict[int | None, str] = dict(summary.series)
    if any(day.project is None and day.day >= summary.first for day in summary.days):
        names[None] = "Other"
    hours: dict[tuple[int | None, date], Fraction] = defaultdict(Fraction)
    spend: dict[tuple[int | None, date], Fraction] = defaultdict(Fraction)
    for used in summary.days:
        hours[used.project, used.day] += used.gpu_seconds / HOUR
        spend[used.project, used.day] += used.amount

    def amount(value: Fraction) -> str:
        return say.money(Money(value, summary.currency))

    gpu = {"key": "hours", "label": "GPU-hours", "unit": "GPU-hours", "prefix": ""}
    measures = [gpu | _values(names, days, today, hours, lambda value: say.hours(value * HOUR))]
    if summary.currency:
        prefix = say.symbol(summary.currency)
        money = {"key": "spend", "label": spend_label, "unit": summary.currency, "prefix": prefix}
        measures.append(money | _values(names, days, today, spend, amount))
    return {"days": [say.short_day(day) for day in days], "measures": measures}


def _values(
    names: Mapping[int | None, str],
    days: Iterable[date],
    today: date,
    values: Values,
    text: Callable[[Fraction], str],
) -> dict[str, Any]:
    """The total of each day, and the series."""
    days = list(days)
    begun = [day for day in days if day <= today]
    coming = [""] * (len(days) - len(begun))
    series = [
        {
            "name": name,
            "values": [*(say.plain(values[project, day]) for day in begun), *coming],
            "texts": [*(text(values[project, day]) for day in begun), *coming],
        }
        for project, name in names.items()
    ]
    if len(series) == 1:
        return {"totals": series[0]["texts"], "series": series}
    totals = [sum((values[project, day] for project in names), Fraction(0)) for day in begun]
    return {"totals": [*(text(total) for total in totals), *coming], "series": series}
