"""The course of a wallet: its service days in their order, and which grant pays for which of them.

Nothing here depends on when anything became known or was booked: the same grants, use and rules have the same
course. Amounts are whole smallest units. Instants are UTC.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import takewhile

from billing.rules.wallet import Grant, burn_order, granted

SWEEP_AFTER = timedelta(days=3)
"""How long what is left of an expired grant stays in the balance, for use of its own days that is told late."""


def gone_on(expires_on: date | None) -> date:
    """The day with which what is left of a grant is gone."""
    return date.max if expires_on is None or expires_on > date.max - SWEEP_AFTER else expires_on + SWEEP_AFTER


@dataclass(frozen=True, slots=True)
class Due:
    """What a rule gives at an instant, up to its cap."""

    grant: Grant  # what is left of it says how much at most
    cap: int
    drawn: int = 0  # of it by invoices

    @property
    def at(self) -> datetime:
        return self.grant.turn[0]


@dataclass(slots=True)
class Balance:
    """The balance as caps look at it: at any instant what was given, less what was used in the hours that ended.

    `flows` are what was given, spent, and paid on invoices, by instant, from the first day of the course on; `hours`
    is what a day used so far, exact, by the ends of its hours; `rounded` makes amounts of it.
    """

    opening: int  # when the course begins
    flows: Sequence[tuple[datetime, int]]
    hours: Mapping[date, Sequence[tuple[datetime, Fraction]]]
    rounded: Callable[[Fraction], int]
    _passed: int = 0  # of the flows

    def at(self, moment: datetime, day: date) -> int:
        """What it is at that instant of that day; instants are asked for in their order."""
        while self._passed < len(self.flows) and self.flows[self._passed][0] <= moment:
            self.opening += self.flows[self._passed][1]
            self._passed += 1
        ended = takewhile(lambda slot: slot[0] <= moment, self.hours.get(day, ()))
        return self.opening - self.rounded(sum((used for _, used in ended), Fraction(0)))

    def pass_day(self, used: int) -> None:
        """The day is over: all that it used is out of the balance."""
        self.opening -= used


@dataclass(slots=True)
class Course:
    """How a wallet's days are paid. `left` is what each grant has for days; below zero: invoices took more."""

    left: dict[int, int] = field(default_factory=dict)
    debts: dict[date, int] = field(default_factory=dict)  # by service day what nothing has paid
    paid: dict[tuple[date, int], int] = field(default_factory=lambda: defaultdict(int))  # by day and grant
    granted: dict[tuple[datetime, str], int] = field(
        default_factory=dict
    )  # of rules with a cap, by their turn
    _order: list[Grant] = field(default_factory=list)

    def open(self, grants: Iterable[Grant], debts: Mapping[date, int]) -> None:
        """What was there before its first day."""
        self._order = sorted(grants, key=burn_order)
        self.left = {grant.key: grant.left for grant in self._order}
        self.debts = dict(debts)

    def give(self, grant: Grant) -> None:
        """The grant pays the debt of days before it, the oldest first; what is left of it is for later.

        Of one that was taken back when invoices had it already, what lacks is a debt of its own day.
        """
        self.left[grant.key] = max(grant.left, 0)
        if grant.left < 0:
            self.paid[grant.usable_from, grant.key] += grant.left
            self.debts[grant.usable_from] = self.debts.get(grant.usable_from, 0) - grant.left
            return
        for day in sorted(day for day, debt in self.debts.items() if debt > 0):
            self._pay(day, grant.key, self.debts[day])
            if not self.left[grant.key]:
                return
            del self.debts[day]
        insort(self._order, grant, key=burn_order)

    def use(self, day: date, amount: int) -> None:
        """What the day used, beside what it owes already, is paid in burn order; what nothing pays is its debt."""
        self.debts[day] = self.debts.get(day, 0) + amount
        for grant in self._order:
            if self.debts[day] <= 0:
                break
            if grant.pays_for(day):
                self._pay(day, grant.key, self.debts[day])
        if not self.debts[day]:
            del self.debts[day]
        self._order = [grant for grant in self._order if self.left[grant.key]]

    def _pay(self, day: date, key: int, debt: int) -> None:
        part = min(debt, self.left[key])
        if part:
            self.left[key] -= part
            self.debts[day] -= part
            self.paid[day, key] += part


def run(
    course: Course,
    *,
    use: Mapping[date, int],
    withdrawn: Mapping[date, int],
    grants: Iterable[Grant],
    dues: Iterable[Due] = (),
    balance: Balance | None = None,
    gone: Mapping[date, Sequence[int]] | None = None,
) -> Course:
    """Let the days pass: each is given what is given on it, then takes what it used and what else was taken on it.

    `dues` are of rules with a cap, for which the balance is needed. `gone`: by day the grants whose rest is gone then.
    """
    by_day: dict[date, list[Grant | Due]] = defaultdict(list)
    entries: list[Grant | Due] = [*grants, *dues]
    for entry in entries:
        by_day[(entry.grant if isinstance(entry, Due) else entry).usable_from].append(entry)
    for day in sorted({*by_day, *use, *withdrawn, *(gone or ())}):
        if balance is not None:
            balance.pass_day(sum(course.left.get(key, 0) for key in (gone or {}).get(day, ())))
        for entry in sorted(by_day[day], key=_turn):
            if isinstance(entry, Grant):
                course.give(entry)
                continue
            if balance is None:
                raise TypeError("a cap needs a balance to look at")
            amount = granted(entry.grant.left, cap=entry.cap, balance=balance.at(entry.at, day))
            balance.opening += amount
            course.granted[entry.grant.turn] = amount
            if amount or entry.drawn:
                course.give(replace(entry.grant, left=amount - entry.drawn))
        course.use(day, use.get(day, 0) + withdrawn.get(day, 0))
        if balance is not None:
            balance.pass_day(use.get(day, 0))
    return course


def _turn(entry: Grant | Due) -> tuple[datetime, bool, str]:
    """Of one instant, those with a cap come last: they look at the others."""
    at, name = (entry.grant if isinstance(entry, Due) else entry).turn
    return at, isinstance(entry, Due), name
