"""Taking back what was billed: from which lines, and never beyond what is left of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from billing.rules.errors import RuleError
from billing.rules.money import Money, split


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


def spread(amount: Money, lefts: Sequence[tuple[int, Money]]) -> dict[int, Money]:
    """Share a positive `amount` over the lines by what is left of each; the shares add up to it exactly.

    Raises OverCreditError beyond what is left in all, lines below zero counted.
    """
    left = sum((amount_left for _, amount_left in lefts), Money.zero(amount.currency))
    if amount > left:
        raise OverCreditError("over-credit", amount=left.text, currency=left.currency)
    if amount == left:
        return {line: amount_left for line, amount_left in lefts if amount_left.amount}
    charged = [(line, amount_left) for line, amount_left in lefts if amount_left.amount > 0]
    shares = split(amount, [amount_left.minor for _, amount_left in charged])
    return {line: share for (line, _), share in zip(charged, shares, strict=True) if share.amount}


def _towards_zero(rest: Money, left: Money) -> Money:
    if rest.amount * left.amount <= 0:
        return Money.zero(rest.currency)
    return rest if abs(rest.amount) <= abs(left.amount) else left
