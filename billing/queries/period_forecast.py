"""What a running period will come to: the pace of its last whole days, carried on and priced as its invoice will be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import accumulate
from zoneinfo import ZoneInfo

from billing.queries import third_party_charges
from billing.queries.accrued_charges import Accrued
from billing.queries.overview import Around, Overview
from billing.queries.third_party_charges import Going
from billing.rules.forecast import LAST, Coming, Pace, pace
from billing.rules.money import Money

DAY = timedelta(days=1)

Ends = tuple[Money, Money, Money]
"""The lowest, what is expected, and the highest; rounded as an invoice is."""

Amount = Callable[[Fraction], Money]
"""What a period comes to when so much more is used, valued as its days are."""


@dataclass(frozen=True, slots=True)
class Days:
    """The period's days [first, end) in the use of first units' prices."""

    first: date
    end: date
    values: dict[date, Fraction]

    @property
    def total(self) -> Fraction:
        """What the period's days come to, the one that is being read as far as it is."""
        return sum((value for on, value in self.values.items() if self.first <= on <= self.end), Fraction(0))

    def course(self, first: date, count: int) -> list[Fraction]:
        """What the period had come to before the day `first`, and at the end of it and of the days that follow."""
        before = sum((value for on, value in self.values.items() if self.first <= on < first), Fraction(0))
        days = [first + DAY * n for n in range(count)]
        values = (self.values.get(day, Fraction(0)) if day >= self.first else Fraction(0) for day in days)
        return list(accumulate(values, initial=before))


@dataclass(frozen=True, slots=True)
class Part:
    """Whose use is carried on at its own pace: the tenant's own, or that of one whom it pays for."""

    days: Days
    last: date  # that is being read
    rest: Fraction  # days left
    amount: Amount

    @property
    def whole_days(self) -> list[Fraction]:
        """The last whole days before the one that is read at present; those before the first use do not count."""
        dates = [self.last - DAY * back for back in range(LAST, 0, -1)]
        begun = min((day for day, value in self.days.values.items() if value), default=self.last)
        return [self.days.values.get(day, Fraction(0)) for day in dates if day >= begun]

    @property
    def pace(self) -> Pace | None:
        return pace(self.whole_days) if self.days.total else None

    def ends(self) -> Ends:
        """As it stands where too few days tell a pace."""
        going = self.pace
        if going is None:
            return (self.amount(Fraction(0)),) * 3
        return _ends(going.coming(self.rest), self.amount)

    def course(self, first: date, count: int) -> list[Money]:
        """What it had come to before the day `first`, and at the end of it and of the days that follow."""
        total = self.days.total
        return [self.amount(so_far - total) for so_far in self.days.course(first, count)]


@dataclass(frozen=True, slots=True)
class PeriodForecast:
    """Of a period that is read up to `through`, within it. `own` is None where the tenant itself uses nothing."""

    currency: str
    through: datetime
    own: Part | None
    others: Sequence[Part]

    @property
    def parts(self) -> list[Part]:
        return [self.own, *self.others] if self.own else [*self.others]

    @property
    def has_pace(self) -> bool:
        """Whether enough whole days are known of anybody; without them nothing is forecast."""
        return any(part.pace for part in self.parts)

    @property
    def has_range(self) -> bool:
        """Whether the days of everybody who has a pace are enough for one."""
        return all(part.pace.variance is not None for part in self.parts if part.pace)

    @property
    def whole_days(self) -> int:
        """That are known of the tenant, or of the first one that it pays for."""
        return len(self.parts[0].whole_days) if self.parts else 0

    @property
    def accrued(self) -> Money:
        return self.total(part.amount(Fraction(0)) for part in self.parts)

    @property
    def ends(self) -> Ends:
        """Ranges are added, as if all went one way: how the tenants vary together is not known."""
        low, expected, high = zip(*(part.ends() for part in self.parts), strict=True)
        return self.total(low), self.total(expected), self.total(high)

    @property
    def paid_for_others(self) -> Money:
        """What of it is expected to be others' use."""
        return self.total(part.ends()[1] for part in self.others)

    def course(self, first: date, count: int) -> list[Money]:
        """What all parts had accrued before the day `first`, and at the end of it and of the days that follow."""
        courses = [part.course(first, count) for part in self.parts]
        return [self.total(amounts) for amounts in zip(*courses, strict=True)]

    def total(self, amounts: Iterable[Money]) -> Money:
        return sum(amounts, Money.zero(self.currency))


def period_forecast(
    summary: Overview, accrued: Accrued | None, others: Sequence[Going], through: datetime | None
) -> PeriodForecast | None:
    """None where nothing is charged yet, or in several currencies, and where a cluster was never read.

    `others` are those for whom the tenant pays, whose use its invoice will hold as well.
    """
    period = summary.period
    paid = accrued.paid if accrued else ()
    currencies = {summary.currency} if summary.currency else {row.amount.currency for row in paid}
    if len(currencies) != 1 or through is None or not period.start < through < period.end:
        return None
    (currency,) = currencies
    own = _own(summary, accrued, through) if summary.currency else None
    return PeriodForecast(currency, through, own, [_of(other, through, currency) for other in others])


def paid_for(
    around: Around, accrued: Accrued | None, *, through: datetime | None, moment: datetime
) -> tuple[Sequence[Going], datetime | None]:
    """For whom the tenant pays while the period runs, and how far their clusters are read, and its own.

    `through` is how far the tenant's own are. To be called in the scope of acting, which reads others' use.
    """
    if accrued is None or not accrued.others or around.period.end <= moment:
        return (), through
    return third_party_charges.load_going(around.inputs, accrued=accrued, moment=moment)


def _own(summary: Overview, accrued: Accrued | None, through: datetime) -> Part:
    days, period = _days(summary), summary.period
    rest = Fraction(int((period.end - through).total_seconds()), 86_400)
    if accrued is None:
        amount = _added_to(summary.spend[0])
    else:
        amount = _by_statement(accrued.of_use, days.total, summary.currency)
    return Part(days, through.astimezone(ZoneInfo(period.timezone)).date(), rest, amount)


def _of(other: Going, through: datetime, currency: str) -> Part:
    period = other.books.period
    first, end = (at.astimezone(other.zone).date() for at in (period.start, period.end))
    days = Days(first, end, dict(other.days))
    last = min(through, period.end).astimezone(other.zone).date()
    amount = _by_statement(other.of_use, days.total, currency)
    return Part(days, last, other.rest(through), amount)


def _added_to(spent: Money) -> Amount:
    def amount(more: Fraction) -> Money:
        return (spent + Money(more, spent.currency)).rounded()

    return amount


def _by_statement(of_use: Callable[[Fraction], list[Money]], so_far: Fraction, currency: str) -> Amount:
    def amount(more: Fraction) -> Money:
        sums = {one.currency: one for one in of_use((so_far + more) / so_far if so_far else Fraction(1))}
        return sums.get(currency, Money.zero(currency))

    return amount


def _ends(coming: Coming, amount: Amount) -> Ends:
    """The lowest, what is expected, and the highest. Of a volume price more use may be the cheaper one."""
    expected = amount(coming.expected)
    if coming.low is None or coming.high is None:
        return expected, expected, expected
    ends = [amount(coming.low), expected, amount(coming.high)]
    return min(ends), expected, max(ends)


def _days(summary: Overview) -> Days:
    values: dict[date, Fraction] = defaultdict(Fraction)
    for day in summary.days:
        values[day.day] += day.amount
    return Days(summary.first, summary.end, values)
