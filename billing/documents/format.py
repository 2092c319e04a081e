"""How amounts, prices and quantities are written for people."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from babel.numbers import format_currency, format_decimal, get_currency_precision

from billing.rules.money import Money, rounded_text

LOCALE = "en_US"


def money_text(money: Money) -> str:
    """`$5,760.00`; of money in whole minor units."""
    text = format_currency(Decimal(money.text), money.currency, locale=LOCALE, decimal_quantization=False)
    return _spaced(text, money.currency)


def price_text(price: Decimal, currency: str) -> str:
    """A unit price with all its decimals, at least the currency's own: `$1.10`, `$0.0125`."""
    digits = max(get_currency_precision(currency), _decimals(price))
    pattern = "¤#,##0." + "0" * digits if digits else "¤#,##0"
    text = format_currency(price, currency, format=pattern, locale=LOCALE, currency_digits=False)
    return _spaced(text, currency)


def plain_price(price: Decimal, currency: str) -> str:
    """A unit price for programs, exact, with at least the currency's own decimals: `1.10`, `0.0125`."""
    return f"{price:.{max(get_currency_precision(currency), _decimals(price))}f}"


def hours_text(resource_seconds: Fraction, places: int = 6) -> str:
    """Resource-hours with grouping and at most `places` decimals: `12.25`, `1,234.333333`."""
    return format_decimal(
        Decimal(rounded_text(resource_seconds / 3600, places)), locale=LOCALE, decimal_quantization=False
    )


def _spaced(text: str, currency: str) -> str:
    """A currency without a sign of its own stands apart from its number: `CHF 12.50`."""
    return text.replace(currency, f"{currency}\N{NO-BREAK SPACE}", 1)


def _decimals(price: Decimal) -> int:
    exponent = price.normalize().as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0
