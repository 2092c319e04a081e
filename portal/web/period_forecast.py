"""What a running period will come to, as its overview tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from billing.queries.overview import Overview
from billing.queries.period_budgets import PeriodBudget
from billing.queries.period_forecast import Ends, PeriodForecast
from billing.rules.forecast import DEVIATIONS, FEWEST, LAST, Pace
from billing.rules.formatting import localized
from billing.rules.money import Money
from portal.web import drawing
from portal.web import format as say
from portal.web.drawing import Plot

DAY = timedelta(days=1)
NUMBERS = {2: gettext_noop("two"), 3: gettext_noop("three"), 7: gettext_noop("seven")}


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What the period will come to. `value` is empty where `why` says that it is too early for one."""

    until: str  # "30 Nov 2026", the period's last day
    value: str = ""
    band: str = ""  # "from $11,204.10 to $13,020.00", "" where too few days tell
    method: str = ""
    why: str = ""
    plot: Plot | None = None
    rows: tuple[
        tuple[str, str], ...
    ] = ()  # of the table behind the plot: by day what had accrued, then what is forecast
    parts: tuple[
        tuple[str, str], ...
    ] = ()  # that add up to `value`: own use, and what is paid for others where it is
    budget: PeriodBudget | None = None  # the tightest, a line across the plot


def forecast(
    summary: Overview, of: PeriodForecast | None, budgets: Sequence[PeriodBudget]
) -> Forecast | None:
    """None where there is none to tell. `budgets` by amount."""
    if of is None:
        return None
    until = say.day(summary.end - DAY)
    budget = next((one for one in budgets if one.amount.currency == of.currency), None)
    if not of.has_pace:
        why = ngettext(
            "A forecast takes {days} whole days of use; there is one so far.",
            "A forecast takes {days} whole days of use; there are {count} so far.",
            of.whole_days,
        ).format(days=_(NUMBERS[FEWEST]), count=of.whole_days or _("none"))
        return Forecast(until=until, why=why, budget=budget)
    ends, course = of.ends, _course(of, summary)
    band = (
        _("from {low} to {high}").format(low=say.money(ends[0]), high=say.money(ends[2]))
        if of.has_range
        else ""
    )
    return Forecast(
        until=until,
        value=say.money(ends[1]),
        band=band,
        method=" ".join([*_methods(of), *_of_others(of)]),
        plot=_plot(of, summary, course, ends, budget),
        rows=(*_rows(course, summary), *_expected(until, ends, band), *_budget_rows(budget)),
        parts=_parts(of),
        budget=budget,
    )


def _parts(of: PeriodForecast) -> tuple[tuple[str, str], ...]:
    """What is expected of the tenant's own use and of all for whom it pays; nothing where it pays for nobody."""
    if not of.others:
        return ()
    own = of.own.ends()[1] if of.own else Money.zero(of.currency)
    return ((_("Own use"), say.money(own)), (_("Paid for others"), say.money(of.paid_for_others)))


def _plot(
    of: PeriodForecast, summary: Overview, course: Sequence[Money], ends: Ends, budget: PeriodBudget | None
) -> Plot:
    start, end = summary.period.start, summary.period.end
    here = (_second(of.through, start), of.accrued.amount)
    points = [(Fraction(n * 86_400), money.amount) for n, money in enumerate(course)]
    there = _second(end, start)
    low, expected, high = (money.amount for money in ends)
    return drawing.plot(
        [*points, here],
        expected=[here, (there, expected)],
        band=[here, (there, high), (there, low)] if high > low else [],
        level=budget.amount.amount if budget else None,
        marks=(
            say.money(max([*ends, budget.amount] if budget else ends)),
            say.short_day(summary.first),
            say.short_day(summary.end - DAY),
        ),
    )


def _course(of: PeriodForecast, summary: Overview) -> list[Money]:
    """What had accrued at the beginning, and at the end of each whole day that was read."""
    last = of.through.astimezone(ZoneInfo(summary.period.timezone)).date()
    return of.course(summary.first, (last - summary.first).days)


def _rows(course: Sequence[Money], summary: Overview) -> tuple[tuple[str, str], ...]:
    return tuple((say.day(summary.first + DAY * n), say.money(money)) for n, money in enumerate(course[1:]))


def _expected(until: str, ends: Ends, band: str) -> tuple[tuple[str, str], ...]:
    rows = ((_("{day}, expected").format(day=until), say.money(ends[1])),)
    return (*rows, (_("{day}, band").format(day=until), band)) if band else rows


def _budget_rows(budget: PeriodBudget | None) -> Iterator[tuple[str, str]]:
    if budget:
        yield _("Budget {name}").format(name=budget.name), say.money(budget.amount)


def _methods(of: PeriodForecast) -> Iterator[str]:
    if of.own and (going := of.own.pace):
        yield _method(going, of.currency, of.own.rest)


def _of_others(of: PeriodForecast) -> Iterator[str]:
    """How the use of those is told for whom the tenant pays."""
    if not of.others:
        return
    going = sum(part.pace is not None for part in of.others)
    if going and of.own and of.own.pace:
        yield _(
            "What is paid for others is carried on in the same way, each at its own pace; the bands are added."
        )
    elif going:
        yield _(
            "What is paid for others is carried on by the last whole days of each, and priced as the invoice will "
            "be; the bands are added."
        )
    if going < len(of.others) or (of.own and of.own.pace is None):
        yield _("Tenants with too few whole days of usage are included with their charges so far.")


def _method(going: Pace, currency: str, rest: Fraction) -> str:
    daily = say.money(Money(going.mean, currency))
    tenths = round(rest * 10)
    left = localized(say.plain(Fraction(tenths, 10)))
    words = ngettext(
        "Based on your last {days} whole days ({daily} a day at the first unit’s prices), continued for the {left} "
        "day left and priced like the invoice: with tiers, included hours, fees, commitment and discounts.",
        "Based on your last {days} whole days ({daily} a day at the first unit’s prices), continued for the {left} "
        "days left and priced like the invoice: with tiers, included hours, fees, commitment and discounts.",
        1 if tenths == 10 else 2,
    ).format(days=going.days, daily=daily, left=left)
    more = _("The likely range is {count} standard deviations of the daily use.").format(
        count=_(NUMBERS[DEVIATIONS])
    )
    if going.variance is None:
        more = _("A likely range needs at least {count} whole days.").format(count=_(NUMBERS[LAST]))
    return f"{words} {more}"


def _second(moment: datetime, start: datetime) -> Fraction:
    return Fraction(int((moment - start).total_seconds()))
