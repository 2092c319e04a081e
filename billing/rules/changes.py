"""What differs from last month, in amounts and per cent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from billing.rules.money import Money, rounded_text

Subject = tuple[str, str]
"""Project, and what was charged for."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One amount last month and now."""

    before: Money
    now: Money

    @property
    def difference(self) -> Money:
        return self.now - self.before

    @property
    def percent(self) -> str:
        """`+300`, `-12.5`, at most one decimal; "" where there was nothing before."""
        if not self.before.amount:
            return ""
        text = rounded_text(self.difference.amount * 100 / abs(self.before.amount), 1)
        return text if self.difference.amount <= 0 else f"+{text}"


def moved(
    before: Mapping[Subject, Money], now: Mapping[Subject, Money], *, currency: str
) -> dict[Subject, Moved]:
    """What differs, the largest difference first; what is the same is left out."""
    zero = Money.zero(currency)
    pairs = {
        subject: Moved(before.get(subject, zero), now.get(subject, zero))
        for subject in sorted({*before, *now})
    }
    differing = [(subject, pair) for subject, pair in pairs.items() if pair.difference.amount]
    return dict(sorted(differing, key=lambda pair: -abs(pair[1].difference.amount)))
