"""Numbers as bundles write them, and amounts as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

Stated = Mapping[str, Any]  # as it stands in invoice.json


def number(text: Any) -> Fraction:
    """Digits, with a point or as a fraction. An exponent would make it of any size."""
    if "e" in str(text).lower():
        raise ValueError(f"{text} is not written as numbers are here")
    return Fraction(text)


def rounded(amount: Fraction, decimals: int) -> int:
    """The nearest smallest units, halves away from zero."""
    units = abs(amount) * int(10 ** of_currency(decimals))
    whole = int(units) + (2 * (units - int(units)) >= 1)
    return -whole if amount < 0 else whole


def of_currency(decimals: int) -> int:
    if not 0 <= decimals <= 4:  # ISO 4217 has none beyond
        raise ValueError(f"a currency of {decimals} decimals")
    return decimals


def money(amount: Any, invoice: Stated) -> str:
    """Smallest units in the currency's own: `-12.50 USD`."""
    decimals = of_currency(invoice["decimals"])
    whole, part = divmod(abs(rounded(Fraction(amount), 0)), 10**decimals)
    digits = f"{whole}.{part:0{decimals}d}" if decimals else str(whole)
    return f"{'-' if amount < 0 else ''}{digits} {invoice['currency']}"
