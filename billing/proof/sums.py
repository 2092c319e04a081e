"""allocated = billed + waived + pending + unassigned, in exact resource-seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from billing.rules.money import decimal_text

PARTS = ("allocated", "billed", "waived", "pending", "unassigned")


@dataclass(slots=True)
class Sums:
    """The parts of one cluster's resource, exact resource-seconds."""

    parts: dict[str, Fraction] = field(default_factory=lambda: dict.fromkeys(PARTS, Fraction(0)))
    unpriced: Fraction = Fraction(0)  # of pending

    def add(self, part: str, value: Fraction) -> None:
        """Count resource-seconds as one of the parts; what has no price yet is pending."""
        if part == "unpriced":
            self.unpriced += value
        self.parts["pending" if part == "unpriced" else part] += value

    @property
    def difference(self) -> Fraction:
        """allocated − (billed + waived + pending + unassigned); 0 where the sum closes."""
        return 2 * self.parts["allocated"] - sum(self.parts.values(), Fraction(0))


def seconds_text(seconds: Fraction) -> str:
    """Exact resource-seconds: a decimal where it is finite, else a fraction such as 1/7."""
    try:
        return decimal_text(seconds)
    except ValueError:
        return f"{seconds.numerator}/{seconds.denominator}"
