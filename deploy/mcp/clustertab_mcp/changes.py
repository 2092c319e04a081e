"""Why spending changed: the differences of groups between two periods, which add up to the cent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

DIGITS = dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split(), 0)  # noqa: SIM905
DIGITS |= dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3)  # noqa: SIM905
"""Decimals of currencies that do not have two (ISO 4217)."""

Group = tuple[tuple[str, str], ...]
Sums = Mapping[str, Mapping[Group, Fraction]]
"""Exact cost by currency and group."""


def costs(usage: Mapping[str, Any]) -> Sums:
    """Of an answer of `usage`, over all its buckets."""
    sums: dict[str, dict[Group, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for bucket in usage["buckets"]:
        for row in bucket["groups"]:
            for cost in row["used"]["cost"]:
                sums[cost["currency"]][tuple(sorted(row["group"].items()))] += Fraction(cost["amount"])
    return sums


def gpu_hours(usage: Mapping[str, Any]) -> Mapping[Group, Fraction]:
    """Of the same, by group."""
    sums: dict[Group, Fraction] = defaultdict(Fraction)
    for bucket in usage["buckets"]:
        for row in bucket["groups"]:
            sums[tuple(sorted(row["group"].items()))] += Fraction(row["used"]["gpu_seconds"]) / 3600
    return sums


def amounts(exact: Sequence[Fraction], digits: int, total: int) -> list[int]:
    """Whole units of 10**-digits, which add up to `total`: by largest remainder, the first of equals."""
    scale = 10**digits
    units = [part * scale // 1 for part in exact]
    left = total - sum(units)
    by_remainder = sorted(range(len(exact)), key=lambda place: (units[place] - exact[place] * scale, place))
    if left < 0:
        by_remainder.reverse()
    for count in range(abs(left)):
        units[by_remainder[count % len(units)]] += 1 if left > 0 else -1
    return units


def rounded(value: Fraction, digits: int) -> int:
    """In units of 10**-digits; half a unit goes away from zero, as on invoices."""
    whole = (abs(value) * 10**digits * 2 + 1) // 2
    return whole if value >= 0 else -whole


def text(units: int, digits: int) -> str:
    """`-12.50` of -1250."""
    whole, rest = divmod(abs(units), 10**digits)
    return f"{'-' if units < 0 else ''}{whole}" + (f".{rest:0{digits}d}" if digits else "")


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By currency: both totals, their difference, and the part of each group, the largest first."""
    earlier, later = costs(before), costs(after)
    hours_before, hours_after = gpu_hours(before), gpu_hours(after)
    result = []
    for currency in sorted({*earlier, *later}):
        digits = DIGITS.get(currency, 2)
        old, new = earlier.get(currency, {}), later.get(currency, {})
        groups = sorted({*old, *new})
        changes = [new.get(group, Fraction()) - old.get(group, Fraction()) for group in groups]
        earlier_units = rounded(sum(old.values(), Fraction()), digits)
        later_units = rounded(sum(new.values(), Fraction()), digits)
        parts = amounts(changes, digits, later_units - earlier_units)
        order = sorted(range(len(groups)), key=lambda place: (-abs(parts[place]), groups[place]))
        result.append(
            {
                "currency": currency,
                "earlier": text(earlier_units, digits),
                "later": text(later_units, digits),
                "difference": text(sum(parts), digits),
                "parts": [
                    {
                        "group": dict(groups[place]),
                        "difference": text(parts[place], digits),
                        "gpu_hours_earlier": _hours(hours_before.get(groups[place], Fraction())),
                        "gpu_hours_later": _hours(hours_after.get(groups[place], Fraction())),
                    }
                    for place in order
                ],
            }
        )
    return result


def _hours(value: Fraction) -> str:
    """To three decimals: for reading, nothing is added up of them."""
    return text(rounded(value, 3), 3)
