"""Taking back what was billed: from which lines, and never beyond what is left of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from billing.rules.errors import RuleError
from billing.rules.money import Money, split

Fits = Callable[[Mapping[int, Money]], bool]
"""Whether a document that takes these amounts back from its lines takes back no more than is left in all."""


class OverCreditError(RuleError):
    """More would be taken back than is left; the message says how much is."""


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Whole minor units taken from lines, by their id, and what no line was left for; signs as billed."""

    parts: Mapping[int, Money]
    excess: Money


def take_back(amount: Money, lefts: Sequence[tuple[int, Money]]) -> Withdrawal:
    """Take `amount` from the lines in that order, from each what is left of it.

    A line of the other sign than `amount` gives nothing.
    """
    rest, parts = amount, {}
    for line, left in lefts:
        part = _towards_zero(rest, left)
        if part.amount:
            parts[line] = part
            rest -= part
    return Withdrawal(parts, rest)


def find_limit(lefts: Sequence[tuple[int, Money]], fits: Fits) -> Money:
    """The most that can be shared over the lines: what is left of them in all, or as much of it as fits."""
    left = _total(lefts)
    if left.amount <= 0 or fits(_share(left, lefts)):
        return left

    def is_too_much(minor: int) -> bool:
        return not fits(_share(Money.from_minor(minor, left.currency), lefts))

    return Money.from_minor(bisect_left(range(1, left.minor), True, key=is_too_much), left.currency)


def spread(amount: Money, lefts: Sequence[tuple[int, Money]], fits: Fits) -> dict[int, Money]:
    """Share a positive `amount` over the lines by what is left of each; the shares add up to it exactly.

    Raises OverCreditError beyond what is left in all, lines below zero counted, and where it does not fit.
    """
    if amount <= _total(lefts) and fits(shares := _share(amount, lefts)):
        return shares
    limit = find_limit(lefts, fits)
    raise OverCreditError("over-credit", amount=limit.text, currency=limit.currency)


def _total(lefts: Sequence[tuple[int, Money]]) -> Money:
    return sum((left for _, left in lefts[1:]), lefts[0][1])


def _share(amount: Money, lefts: Sequence[tuple[int, Money]]) -> dict[int, Money]:
    """All that is left as it stands, lines below zero too; less than that from lines above zero alone."""
    if amount == _total(lefts):
        return {line: left for line, left in lefts if left.amount}
    charged = [(line, left) for line, left in lefts if left.amount > 0]
    shares = split(amount, [left.minor for _, left in charged])
    return {line: share for (line, _), share in zip(charged, shares, strict=True) if share.amount}


def _towards_zero(rest: Money, left: Money) -> Money:
    if rest.amount * left.amount <= 0:
        return Money.zero(rest.currency)
    return rest if abs(rest.amount) <= abs(left.amount) else left
