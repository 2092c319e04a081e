"""Wallets: what burns first, what comes back to where, and when grants are due.

Amounts are whole smallest units of the wallet's unit (cents, millionths of a token). Days are the
service days of the wallet's own zone. What was used is always taken in full: where no grant is
left it makes a debt, which no grant's limit and no clamp forgives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from billing.rules.errors import RuleError
from billing.rules.period import billing_period, day_after

_HOUR = timedelta(hours=1)
_EVER = datetime.min.replace(tzinfo=UTC)


class Every(StrEnum):
    """How often a grant is due: once, at the wallet's opening, or then and at every border that follows."""

    ONCE = "once"
    HOUR = "hour"  # full hours of UTC
    DAY = "day"  # midnights of the wallet's zone
    MONTH = "month"  # starts of the tenant's billing periods


@dataclass(frozen=True, slots=True)
class Grant:
    """What is left of one grant. It pays for service days of [usable_from, expires_on), None: for ever."""

    key: int
    left: int
    priority: int  # the lowest burns first
    usable_from: date
    expires_on: date | None
    turn: tuple[datetime, str] = (_EVER, "")  # when it was given, and its name: among equals the first burns

    def pays_for(self, day: date) -> bool:
        return self.usable_from <= day and (self.expires_on is None or day < self.expires_on)


@dataclass(frozen=True, slots=True)
class Piece:
    """So much of one grant; None is what lies in no grant: credit above zero, debt below."""

    grant: int | None
    amount: int


def burn(amount: int, grants: Iterable[Grant], *, day: date) -> list[Piece]:
    """Where `amount`, used on `day`, is taken from: pieces that add up to it, all positive.

    Lowest priority first, then what expires earliest, then the oldest. What no grant can pay comes out of no
    grant. ValueError for a negative amount.
    """
    if amount < 0:
        raise RuleError("wallet-use", amount=amount)
    pieces = []
    for grant in _in_burn_order(grants, day):
        part = min(amount, grant.left)
        if part > 0:
            pieces.append(Piece(grant.key, part))
            amount -= part
    if amount:
        pieces.append(Piece(None, amount))
    return pieces


def give_back(amount: int, drawn: Sequence[Piece]) -> list[Piece]:
    """To where `amount` returns of what was `drawn`, in that order: what was taken last comes back first.

    ValueError where more would return than was taken.
    """
    pieces = []
    for piece in reversed(drawn):
        returned = min(amount, piece.amount)
        if returned > 0:
            pieces.append(Piece(piece.grant, returned))
            amount -= returned
    if amount:
        raise RuleError("wallet-return", amount=amount)
    return pieces


def pay(parts: Iterable[tuple[date, int]], grants: Iterable[Grant], *, limit: int) -> list[Piece]:
    """What grants give towards an invoice: `parts` are the amounts that it charges for service days, in order.

    A grant pays for days before the one on which it expires, whenever it was given. Each day takes in burn order
    what the days before it left, `limit` in all; what no grant pays is not taken. Pieces are in the order in which
    grants were first taken from.
    """
    left = {grant.key: replace(grant, usable_from=date.min) for grant in grants}
    paid: dict[int, int] = {}
    for day, amount in parts:
        for piece in burn(min(amount, limit), left.values(), day=day):
            if piece.grant is not None:
                grant = left[piece.grant]
                left[piece.grant] = replace(grant, left=grant.left - piece.amount)
                paid[piece.grant] = paid.get(piece.grant, 0) + piece.amount
                limit -= piece.amount
    return [Piece(grant, amount) for grant, amount in paid.items()]


def granted(amount: int, *, cap: int | None, balance: int) -> int:
    """What a grant adds: up to `cap` in the wallet and no more; nothing where it stands above already.

    Of a debt it pays as much as that lets it.
    """
    return amount if cap is None else max(min(amount, cap - balance), 0)


_TOO_SOON = {Every.DAY: timedelta(hours=12), Every.MONTH: timedelta(days=2)}
"""After a border of another zone; between two of one zone there is more."""


def due(
    every: Every,
    *,
    opened: datetime,
    after: datetime | None,
    until: datetime,
    zone: ZoneInfo,
    anchor_day: int,
) -> Iterator[datetime]:
    """The instants of (after, until] at which a grant is due, in order: the opening, then the borders behind it.

    All instants are UTC; `after` is None where none was given yet. Where the tenant has moved to another zone or anchor
    day since, a border that follows too soon is the one that was given at already.
    """
    at = opened
    if after is not None and after >= opened:
        if every is Every.ONCE:
            return
        at = _next(every, after, zone, anchor_day)
        if after > opened and at - after < _TOO_SOON.get(every, timedelta()):
            at = _next(every, at, zone, anchor_day)
    while at <= until:
        yield at
        if every is Every.ONCE:
            return
        at = _next(every, at, zone, anchor_day)


def _next(every: Every, at: datetime, zone: ZoneInfo, anchor_day: int) -> datetime:
    if every is Every.HOUR:
        return at.replace(minute=0, second=0) + _HOUR
    if every is Every.DAY:
        return day_after(at, zone=zone)
    return billing_period(at, zone=zone, anchor_day=anchor_day).end.astimezone(UTC)


def burn_order(grant: Grant) -> tuple[int, date, date, tuple[datetime, str], int]:
    """By what grants are sorted: none of it depends on when anything was booked."""
    return (grant.priority, grant.expires_on or date.max, grant.usable_from, grant.turn, grant.key)


def _in_burn_order(grants: Iterable[Grant], day: date) -> list[Grant]:
    return sorted((grant for grant in grants if grant.left > 0 and grant.pays_for(day)), key=burn_order)
