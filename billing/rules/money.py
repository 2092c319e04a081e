"""Money: an exact amount and its currency, rounded in one place.

An amount is a `Fraction`, so a price per hour times a number of seconds keeps every digit. It
becomes whole minor units (cents) once, by `Money.rounded`, when it becomes a line people see.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import total_ordering

from billing.rules.errors import RuleError
from portal.excerpt import quoted

Exact = int | Decimal | Fraction
"""The number types that hold what was written; binary floating point does not."""

# The currencies of ISO 4217 that are in circulation, and CLF, the unit of account in which Chile writes prices and
# contracts. Its metals, other funds and test codes are left out: nobody can pay an invoice in them.
_CODES = """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD
    CAD CDF CHF CLF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS
    GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW
    KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR
    MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR
    SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX
    USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
_CURRENCIES = frozenset(_CODES.split())
_WITHOUT_MINOR_UNIT = (
    *("JPY", "KRW", "VND", "CLP", "PYG", "UGX", "XAF", "XOF"),
    *("XPF", "RWF", "KMF", "DJF", "GNF", "BIF", "VUV", "ISK"),
)
_IN_THOUSANDTHS = ("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND")
_EXPONENTS = dict.fromkeys(_WITHOUT_MINOR_UNIT, 0) | dict.fromkeys(_IN_THOUSANDTHS, 3) | {"CLF": 4}
TOKENS = "TOK"
"""The unit of plans and wallets that count in tokens. No currency: no invoice can be in it, nobody can pay it."""

LARGEST = 10**15
"""Minor units. What is written above it is a slip of the hand, and thousands of such still fit the column of a sum."""

_EXPONENTS[TOKENS] = 6  # the smallest that a wallet holds is a millionth
_PLAIN_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?", re.ASCII)
_LONGEST = 100  # characters of a number that somebody wrote


class CurrencyMismatchError(RuleError):
    """Two currencies met in one sum or comparison; nothing here converts."""


def is_currency(code: str) -> bool:
    """Whether `code` is a circulating ISO 4217 currency, written in capitals."""
    return code in _CURRENCIES


def exponent(currency: str) -> int:
    """How many decimals the minor unit of `currency` has: USD 2, JPY 0, KWD 3 (ISO 4217), tokens 6.

    Raises ValueError for what is neither. Payment providers differ for some currencies; their exponents belong to
    their gateway.
    """
    if not is_currency(currency) and currency != TOKENS:
        raise RuleError("currency-unknown", currency=quoted(currency))
    return _EXPONENTS.get(currency, 2)


@total_ordering
@dataclass(frozen=True, slots=True)
class Money:
    """An exact amount in major units (dollars). Sums start from `Money.zero(currency)`.

    Adding, subtracting or ordering two currencies raises `CurrencyMismatchError`; comparing them
    with `==` is False.
    """

    amount: Fraction
    currency: str

    def __post_init__(self) -> None:
        if not isinstance(self.amount, Fraction):
            raise TypeError(f"A money amount is a Fraction, not {type(self.amount).__name__}; see Money.of.")
        exponent(self.currency)

    @classmethod
    def of(cls, amount: str | Exact, currency: str) -> Money:
        """`Money.of("1.10", "USD")`. TypeError for a float, ValueError for text that is no plain decimal."""
        if isinstance(amount, str):
            return cls(Fraction(decimal_of(amount)), currency)
        return cls(_exact(amount), currency)

    @classmethod
    def from_minor(cls, minor: int, currency: str) -> Money:
        """`Money.from_minor(1234, "USD")` is 12.34 dollars."""
        if not isinstance(minor, int):
            raise TypeError(f"Minor units are an int, not {type(minor).__name__}.")
        return cls(Fraction(minor, _units(currency)), currency)

    @classmethod
    def zero(cls, currency: str) -> Money:
        """No money, of a known currency: `sum(amounts, Money.zero("USD"))`."""
        return cls(Fraction(0), currency)

    @property
    def minor(self) -> int:
        """The amount in minor units. ValueError unless it is a whole number of them: round first."""
        units = self.amount * _units(self.currency)
        if units.denominator != 1:
            raise RuleError("minor-units", amount=self.amount, currency=self.currency)
        return units.numerator

    @property
    def text(self) -> str:
        """The bare amount with every decimal of its currency: "1234.50". ValueError as `minor`."""
        return _fixed(self.minor, exponent(self.currency))

    def check_bookable(self) -> None:
        """For an amount that somebody wrote: ValueError for one that no bill comes to, and as `minor`."""
        if abs(self.amount) * _units(self.currency) > LARGEST:
            raise RuleError(
                "amount-too-large", most=Money.from_minor(LARGEST, self.currency).text, currency=self.currency
            )
        _ = self.minor

    def rounded(self) -> Money:
        """The nearest whole minor units, halves away from zero, so that a refund mirrors its charge."""
        units = _nearest(self.amount.numerator * _units(self.currency), self.amount.denominator)
        return Money.from_minor(units, self.currency)

    def __add__(self, other: Money) -> Money:
        return Money(self.amount + self._amount_of(other), self.currency)

    def __sub__(self, other: Money) -> Money:
        return Money(self.amount - self._amount_of(other), self.currency)

    def __neg__(self) -> Money:
        return Money(-self.amount, self.currency)

    def __mul__(self, factor: Exact) -> Money:
        return Money(self.amount * _exact(factor), self.currency)

    __rmul__ = __mul__

    def __lt__(self, other: Money) -> bool:
        return self.amount < self._amount_of(other)

    def _amount_of(self, other: Money) -> Fraction:
        if not isinstance(other, Money):
            raise TypeError(f"Money goes with money, not with {type(other).__name__}.")
        if other.currency != self.currency:
            raise CurrencyMismatchError("currency-mismatch", currency=self.currency, other=other.currency)
        return other.amount


def decimal_of(text: str) -> Decimal:
    """The number that somebody wrote: "1.10". ValueError for text that is no plain decimal, or far too long.

    Whatever people write becomes a number here: `Decimal` takes exponents, and exact arithmetic with `1e-999999999`
    takes days.
    """
    if len(text) > _LONGEST or not _PLAIN_DECIMAL.fullmatch(text):
        raise RuleError("amount-unreadable", text=quoted(text))
    return Decimal(text)


def split(money: Money, weights: Sequence[int]) -> list[Money]:
    """Share whole minor units out in proportion to `weights`; the shares add up to `money` exactly.

    Largest remainder: each share gets its whole minor units, and those left over go one each to the
    shares that lost most, ties to the earlier. A negative amount is shared as its mirror image.
    ValueError when a weight is negative, all are zero, or `money` is not rounded.
    """
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise RuleError("split-weights")
    minor = money.minor
    units, remainders = zip(*(divmod(abs(minor) * weight, whole) for weight in weights), strict=True)
    left_over = abs(minor) - sum(units)
    by_loss = sorted(range(len(units)), key=lambda index: (-remainders[index], index))
    lucky = set(by_loss[:left_over])
    sign = -1 if minor < 0 else 1
    return [Money.from_minor(sign * (unit + (i in lucky)), money.currency) for i, unit in enumerate(units)]


def decimal_text(value: Fraction, places: int | None = None) -> str:
    """`value` as decimal text without exponent or trailing zeros, for quantities: "0.25", "333.333".

    A value with a finite decimal form is written exactly, however many decimals it takes. Any
    other (a third of an hour) is rounded to `places`, halves away from zero; without `places` it
    raises ValueError, so that nothing is shortened unnoticed.
    """
    exact = _finite_places(value.denominator)
    if exact is None and places is None:
        raise RuleError("decimals-endless", value=value)
    shown = exact if exact is not None else places or 0
    text = _fixed(_nearest(value.numerator * 10**shown, value.denominator), shown)
    return text.rstrip("0").rstrip(".") if shown else text


def rounded_text(value: Fraction, places: int, *, fixed: bool = False) -> str:
    """`value` as decimal text with at most `places` decimals, halves away from zero; trailing zeros if `fixed`."""
    text = _fixed(_nearest(value.numerator * 10**places, value.denominator), places)
    return text.rstrip("0").rstrip(".") if places and not fixed else text


def nearest(value: Fraction) -> int:
    """The nearest whole number, halves away from zero."""
    return _nearest(value.numerator, value.denominator)


def _units(currency: str) -> int:
    """Minor units in one major unit."""
    return int(10 ** exponent(currency))


def _exact(value: Exact) -> Fraction:
    if not isinstance(value, (int, Decimal, Fraction)):
        raise TypeError(f"Money takes an int, Decimal or Fraction, not {type(value).__name__}.")
    if isinstance(value, Decimal) and not value.is_finite():
        raise RuleError("amount-not-finite", value=value)
    return Fraction(value)


def _nearest(numerator: int, denominator: int) -> int:
    """The nearest whole number, halves away from zero. On integers: no context can change the answer."""
    whole, remainder = divmod(abs(numerator), denominator)
    whole += 2 * remainder >= denominator
    return -whole if numerator < 0 else whole


def _fixed(units: int, places: int) -> str:
    """`units` of 10^-places as text: (-5, 2) is "-0.05"."""
    digits = str(abs(units)).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"-{text}" if units < 0 else text


def _finite_places(denominator: int) -> int | None:
    """Decimals that write 1/denominator exactly; None if a prime other than 2 and 5 divides it."""
    twos = fives = 0
    while denominator % 2 == 0:
        denominator, twos = denominator // 2, twos + 1
    while denominator % 5 == 0:
        denominator, fives = denominator // 5, fives + 1
    return max(twos, fives) if denominator == 1 else None
