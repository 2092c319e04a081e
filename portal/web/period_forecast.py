"""What a running period will come to, as its overview tells it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from billing.queries.overview import Overview
from billing.queries.period_forecast import Ends, PeriodForecast
from billing.rules.forecast import DEVIATIONS, FEWEST, LAST, Pace
from billing.rules.money import Money
from portal.web import drawing
from portal.web import format as say
from portal.web.drawing import Plot

DAY = timedelta(days=1)
NUMBERS = {2: "two", 3: "three", 7: "seven"}


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


def forecast(summary: Overview, of: PeriodForecast | None) -> Forecast | None:
    """None where there is none to tell."""
    if of is None:
        return None
    until = say.day(summary.end - DAY)
    if not of.has_pace:
        why = f"A forecast takes {NUMBERS[FEWEST]} whole days of use; there {_are(of.whole_days)} so far."
        return Forecast(until=until, why=why)
    ends = of.ends
    band = f"from {say.money(ends[0])} to {say.money(ends[2])}" if of.has_range else ""
    return Forecast(
        until=until,
        value=say.money(ends[1]),
        band=band,
        method=" ".join([*_methods(of), *_of_others(of)]),
        plot=_plot(of, summary, ends),
        rows=(*_rows(of, summary), *_expected(until, ends, band)),
        parts=_parts(of),
    )


def _parts(of: PeriodForecast) -> tuple[tuple[str, str], ...]:
    """What is expected of the tenant's own use and of all for whom it pays; nothing where it pays for nobody."""
    if not of.others:
        return ()
    own = of.own.ends()[1] if of.own else Money.zero(of.currency)
    return (("Own use", say.money(own)), ("Paid for others", say.money(of.paid_for_others)))


def _plot(of: PeriodForecast, summary: Overview, ends: Ends) -> Plot:
    start, end = summary.period.start, summary.period.end
    here = (_second(of.through, start), of.accrued.amount)
    points = [(Fraction(0), of.total(part.by(summary.first - DAY) for part in of.parts).amount)]
    points += [(x, money.amount) for x, _, money in _course(of, summary)]
    there = _second(end, start)
    low, expected, high = (money.amount for money in ends)
    return drawing.plot(
        [*points, here],
        expected=[here, (there, expected)],
        band=[here, (there, high), (there, low)] if high > low else [],
        marks=(
            say.money(max(ends)),
            say.short_day(summary.first),
            say.short_day(summary.end - DAY),
        ),
    )


def _course(of: PeriodForecast, summary: Overview) -> list[tuple[Fraction, date, Money]]:
    """What had accrued at the end of each whole day that was read."""
    last = of.through.astimezone(ZoneInfo(summary.period.timezone)).date()
    days = [summary.first + DAY * n for n in range((last - summary.first).days)]
    return [
        (Fraction((n + 1) * 86_400), day, of.total(part.by(day) for part in of.parts))
        for n, day in enumerate(days)
    ]


def _rows(of: PeriodForecast, summary: Overview) -> tuple[tuple[str, str], ...]:
    return tuple((say.day(day), say.money(money)) for _, day, money in _course(of, summary))


def _expected(until: str, ends: Ends, band: str) -> tuple[tuple[str, str], ...]:
    rows = ((f"{until}, expected", say.money(ends[1])),)
    return (*rows, (f"{until}, band", band)) if band else rows


def _methods(of: PeriodForecast) -> Iterator[str]:
    if of.own and (going := of.own.pace):
        yield _method(going, of.currency, of.own.rest)


def _of_others(of: PeriodForecast) -> Iterator[str]:
    """How the use of those is told for whom the tenant pays."""
    if not of.others:
        return
    going = sum(part.pace is not None for part in of.others)
    if going and of.own and of.own.pace:
        yield "What is paid for others is carried on in the same way, each at its own pace; the bands are added."
    elif going:
        yield (
            "What is paid for others is carried on by the last whole days of each, and priced as the invoice will "
            "be; the bands are added."
        )
    if going < len(of.others) or (of.own and of.own.pace is None):
        yield "Those of whom too few whole days are known are in it as they stand."


def _method(going: Pace, currency: str, rest: Fraction) -> str:
    daily = say.money(Money(going.mean, currency))
    left = say.plain(Fraction(round(rest * 10), 10))
    words = (
        f"Based on your last {going.days} whole days ({daily} a day at the first unit’s prices), continued for the "
        f"{left} days left and priced like the invoice: with tiers, included hours, fees, commitment and discounts."
    )
    if going.variance is None:
        return f"{words} A likely range needs at least {NUMBERS[LAST]} whole days."
    return f"{words} The likely range is {NUMBERS[DEVIATIONS]} standard deviations of the daily use."


def _second(moment: datetime, start: datetime) -> Fraction:
    return Fraction(int((moment - start).total_seconds()))


def _are(count: int) -> str:
    return "is one" if count == 1 else f"are {count or 'none'}"
