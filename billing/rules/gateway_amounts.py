"""Our minor units and Stripe's: they differ for currencies that ISO 4217 and Stripe count differently.

Source: Stripe's documentation of currencies (zero-decimal, three-decimal and special cases, minimum
and maximum charge amounts).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from billing.rules.errors import RuleError
from billing.rules.money import Money, exponent

_ZERO_DECIMAL: Final = frozenset(
    ("BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF")
)
# Counted in hundredths, of which only whole units are taken.
_WHOLE_IN_HUNDREDTHS: Final = frozenset(("ISK", "UGX"))
_THREE_DECIMAL: Final = frozenset(("BHD", "JOD", "KWD", "OMR", "TND"))  # whose last digit has to be 0

_LEAST: Final = {
    "USD": 50, "AED": 200, "AUD": 50, "BGN": 100, "BRL": 50, "CAD": 50, "CHF": 50, "CZK": 1500, "DKK": 250,
    "EUR": 50, "GBP": 30, "HKD": 400, "HUF": 17500, "INR": 50, "JPY": 50, "MXN": 1000, "MYR": 200, "NOK": 300,
    "NZD": 50, "PLN": 200, "RON": 200, "SEK": 300, "SGD": 50, "THB": 1000,
}  # fmt: skip
MOST: Final = 99_999_999
"""The largest amount of one charge, in Stripe's units."""


def to_stripe(minor: int, currency: str) -> tuple[int, int]:
    """(Stripe's amount, what of ours it leaves over): an amount that cannot be charged in full is rounded down."""
    unit: int = 10 ** exponent(currency)  # of ours
    if currency in _ZERO_DECIMAL:
        whole, left = divmod(minor, unit)
        return whole, left
    if currency in _WHOLE_IN_HUNDREDTHS:
        whole, left = divmod(minor, unit)
        return whole * 100, left
    if currency in _THREE_DECIMAL:
        tens, left = divmod(minor, 10)
        return tens * 10, left
    return minor, 0


def step(currency: str) -> int:
    """In what steps Stripe takes a currency, in our minor units: 10 of a Kuwaiti dinar's fils, 1 of nearly all else."""
    if currency in _ZERO_DECIMAL | _WHOLE_IN_HUNDREDTHS:
        return int(10 ** exponent(currency))
    return 10 if currency in _THREE_DECIMAL else 1


def from_stripe(amount: int, currency: str) -> int:
    """Our minor units. Raises ValueError for a part of a unit that we do not count."""
    unit: int = 10 ** exponent(currency)  # of ours
    if currency in _ZERO_DECIMAL:
        return amount * unit
    if currency in _WHOLE_IN_HUNDREDTHS:
        whole, left = divmod(amount, 100)
        if left:
            raise RuleError("gateway-amount", amount=amount, currency=currency)
        return whole * unit
    return amount


def as_money(amount: int, currency: str) -> Money:
    """An amount of Stripe's as it is, also where it holds a part of a unit that we do not count."""
    if currency in _ZERO_DECIMAL:
        return Money.of(Fraction(amount), currency)
    return Money.of(Fraction(amount, 1000 if currency in _THREE_DECIMAL else 100), currency)


def least(currency: str) -> int:
    """The smallest charge in Stripe's units; 1 where Stripe alone knows it, since it depends on the settlement."""
    return _LEAST.get(currency, 1)
