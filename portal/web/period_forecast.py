"""What a running period will come to, as its overview tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from billing.queries.accrued_charges import Accrued, Paid
from billing.queries.overview import Overview
from billing.queries.third_party_charges import Going
from billing.rules.forecast import DEVIATIONS, FEWEST, LAST, Coming, Pace, pace
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


@dataclass(frozen=True)
class _Days:
    """The period's days in the use of first units' prices."""

    first: date
    end: date
    values: dict[date, Fraction]

    def until(self, day: date) -> Fraction:
        """What the period's days up to and with that one come to."""
        return sum((value for on, value in self.values.items() if self.first <= on <= day), Fraction(0))


Amount = Callable[[Fraction], Money]
"""What a period comes to when so much more is used, valued as its days are."""


@dataclass(frozen=True)
class _Part:
    """Whose use is carried on at its own pace: the tenant's own, or that of one whom it pays for."""

    days: _Days
    last: date  # that is being read
    rest: Fraction  # days left
    amount: Amount

    @property
    def pace(self) -> Pace | None:
        return pace(_whole(self.days, self.last)) if self.days.until(self.days.end) else None

    def ends(self) -> tuple[Money, Money, Money]:
        """The lowest, what is expected, and the highest; as it stands where too few days tell a pace."""
        going = self.pace
        if going is None:
            return (self.amount(Fraction(0)),) * 3
        return _ends(going.coming(self.rest), self.amount)

    def by(self, day: date) -> Money:
        """What it had come to at the end of that day."""
        return self.amount(self.days.until(day) - self.days.until(self.days.end))


def forecast(
    summary: Overview, accrued: Accrued | None, others: Sequence[Going], through: datetime | None
) -> Forecast | None:
    """None where nothing is charged yet, or in several currencies, and where a cluster was never read.

    `others` are those for whom the tenant pays, whose use its invoice will hold as well.
    """
    period = summary.period
    currencies = {summary.currency} if summary.currency else {row.amount.currency for row in _paid(accrued)}
    if len(currencies) != 1 or through is None or not period.start < through < period.end:
        return None
    (currency,) = currencies
    own = _own(summary, accrued, through) if summary.currency else None
    other_parts = [_of(other, through, currency) for other in others]
    parts = [own, *other_parts] if own else other_parts
    until = say.day(summary.end - DAY)
    if not any(part.pace for part in parts):
        whole_days = _whole(parts[0].days, parts[0].last) if parts else []
        why = f"A forecast takes {NUMBERS[FEWEST]} whole days of use; there {_are(len(whole_days))} so far."
        return Forecast(until=until, why=why)
    ends = _added([part.ends() for part in parts])
    sure = all(part.pace.variance is not None for part in parts if part.pace)
    band = f"from {say.money(ends[0])} to {say.money(ends[2])}" if sure else ""
    return Forecast(
        until=until,
        value=say.money(ends[1]),
        band=band,
        method=" ".join([*_methods(own, currency), *_of_others(own, other_parts)]),
        plot=_plot(parts, through, summary, ends),
        rows=(*_rows(parts, through, summary), *_expected(until, ends, band)),
        parts=_parts(own, other_parts, currency),
    )


def _own(summary: Overview, accrued: Accrued | None, through: datetime) -> _Part:
    days, period = _days(summary), summary.period
    rest = Fraction(int((period.end - through).total_seconds()), 86_400)
    if accrued is None:
        amount = _added_to(summary.spend[0])
    else:
        amount = _by_statement(accrued.of_use, days.until(summary.end), summary.currency)
    return _Part(days, through.astimezone(ZoneInfo(period.timezone)).date(), rest, amount)


def _of(other: Going, through: datetime, currency: str) -> _Part:
    period = other.books.period
    first, end = (at.astimezone(other.zone).date() for at in (period.start, period.end))
    days = _Days(first, end, dict(other.days))
    last = min(through, period.end).astimezone(other.zone).date()
    amount = _by_statement(other.of_use, days.until(end), currency)
    return _Part(days, last, other.rest(through), amount)


def _added_to(spent: Money) -> Amount:
    def amount(more: Fraction) -> Money:
        return (spent + Money(more, spent.currency)).rounded()

    return amount


def _by_statement(of_use: Callable[[Fraction], list[Money]], so_far: Fraction, currency: str) -> Amount:
    def amount(more: Fraction) -> Money:
        sums = {one.currency: one for one in of_use((so_far + more) / so_far if so_far else Fraction(1))}
        return sums.get(currency, Money.zero(currency))

    return amount


def _paid(accrued: Accrued | None) -> Sequence[Paid]:
    return accrued.paid if accrued else ()


def _added(ends: Sequence[tuple[Money, Money, Money]]) -> tuple[Money, Money, Money]:
    """Bands are added, as if all went one way: how the tenants vary together is not known."""
    zero = Money.zero(ends[0][0].currency)
    low, expected, high = (sum(amounts, zero) for amounts in zip(*ends, strict=True))
    return low, expected, high


def _parts(own: _Part | None, other_parts: Sequence[_Part], currency: str) -> tuple[tuple[str, str], ...]:
    """What is expected of the tenant's own use and of all for whom it pays; nothing where it pays for nobody."""
    if not other_parts:
        return ()
    zero = Money.zero(currency)
    paid = sum((part.ends()[1] for part in other_parts), zero)
    return (
        ("Own use", say.money(own.ends()[1] if own else zero)),
        ("Paid for others", say.money(paid)),
    )


def _ends(coming: Coming, amount: Amount) -> tuple[Money, Money, Money]:
    """The lowest, what is expected, and the highest. Of a volume price more use may be the cheaper one."""
    expected = amount(coming.expected)
    if coming.low is None or coming.high is None:
        return expected, expected, expected
    ends = [amount(coming.low), expected, amount(coming.high)]
    return min(ends), expected, max(ends)


def _days(summary: Overview) -> _Days:
    values: dict[date, Fraction] = defaultdict(Fraction)
    for day in summary.days:
        values[day.day] += day.amount
    return _Days(summary.first, summary.end, values)


def _whole(days: _Days, last: date) -> list[Fraction]:
    """The last whole days before the one that is read at present; those before the first use do not count."""
    dates = [last - DAY * back for back in range(LAST, 0, -1)]
    begun = min((day for day, value in days.values.items() if value), default=last)
    return [days.values.get(day, Fraction(0)) for day in dates if day >= begun]


def _plot(
    parts: Sequence[_Part], through: datetime, summary: Overview, ends: tuple[Money, Money, Money]
) -> Plot:
    start, end = summary.period.start, summary.period.end
    here = (_second(through, start), _sum(part.amount(Fraction(0)) for part in parts).amount)
    points = [(Fraction(0), _sum(part.by(summary.first - DAY) for part in parts).amount)]
    points += [(x, money.amount) for x, _, money in _course(parts, through, summary)]
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


def _course(
    parts: Sequence[_Part], through: datetime, summary: Overview
) -> list[tuple[Fraction, date, Money]]:
    """What had accrued at the end of each whole day that was read."""
    last = through.astimezone(ZoneInfo(summary.period.timezone)).date()
    days = [summary.first + DAY * n for n in range((last - summary.first).days)]
    return [
        (Fraction((n + 1) * 86_400), day, _sum(part.by(day) for part in parts)) for n, day in enumerate(days)
    ]


def _sum(amounts: Iterable[Money]) -> Money:
    first, *rest = amounts
    return sum(rest, first)


def _rows(parts: Sequence[_Part], through: datetime, summary: Overview) -> tuple[tuple[str, str], ...]:
    course = _course(parts, through, summary)
    return tuple((say.day(day), say.money(money)) for _, day, money in course)


def _expected(until: str, ends: tuple[Money, Money, Money], band: str) -> tuple[tuple[str, str], ...]:
    rows = ((f"{until}, expected", say.money(ends[1])),)
    return (*rows, (f"{until}, band", band)) if band else rows


def _methods(own: _Part | None, currency: str) -> Iterator[str]:
    if own and (going := own.pace):
        yield _method(going, currency, own.rest)


def _of_others(own: _Part | None, other_parts: Sequence[_Part]) -> Iterator[str]:
    """How the use of those is told for whom the tenant pays."""
    if not other_parts:
        return
    going = sum(part.pace is not None for part in other_parts)
    if going and own and own.pace:
        yield "What is paid for others is carried on in the same way, each at its own pace; the bands are added."
    elif going:
        yield (
            "What is paid for others is carried on by the last whole days of each, and priced as the invoice will "
            "be; the bands are added."
        )
    if going < len(other_parts) or (own and own.pace is None):
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
