"""When an invoice is so unlike the usual that somebody looks at it before it is issued."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from billing.rules.money import Money, decimal_text, rounded_text


@dataclass(frozen=True, slots=True)
class ApprovalLimits:
    """What is issued without a look; None where that has no bound. `total` is with tax, in the invoice's currency."""

    times_usual: Fraction | None = None
    lines: int | None = None
    total: Money | None = None

    def __bool__(self) -> bool:
        return self.times_usual is not None or self.lines is not None or self.total is not None


def mean(totals: Sequence[Money]) -> Money | None:
    """What is usual: the mean of the last invoices, exact; None where there are none above zero."""
    counted = [total for total in totals if total.amount > 0]
    if not counted:
        return None
    return Money.of(sum((total.amount for total in counted), Fraction(0)) / len(counted), counted[0].currency)


def beyond(bounds: ApprovalLimits, *, total: Money, lines: int, usual: Money | None) -> Iterator[str]:
    """A sentence for each bound that is passed; what lies on a bound has not passed it."""
    if (
        bounds.times_usual is not None
        and usual is not None
        and total.amount > usual.amount * bounds.times_usual
    ):
        times = rounded_text(total.amount / usual.amount, 2)
        yield (
            f"{_text(total)} is {times} times the usual {_text(usual.rounded())}, and "
            f"{decimal_text(bounds.times_usual, 6)} times is the most that is issued unseen."
        )
    if bounds.total is not None and total.amount > bounds.total.amount:
        yield f"{_text(total)} is more than {_text(bounds.total)}, the most that is issued unseen."
    if bounds.lines is not None and lines > bounds.lines:
        yield f"It has {lines} lines, and {bounds.lines} are the most that are issued unseen."


def _text(money: Money) -> str:
    return f"{money.text} {money.currency}"
