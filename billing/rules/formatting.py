"""How amounts, prices and quantities are written for people.

Python groups digits as the locale does. Asking Babel for each number took a fifth of a page's time.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache

from babel import Locale
from babel.numbers import format_currency, get_currency_precision

from billing.rules.money import TOKENS, Money, rounded_text
from portal.locales import GERMAN, current, locale

SWAPPED = str.maketrans(",.", ".,")
TOKEN_NAMES = {GERMAN: ("Token", "Tokens")}


def money_text(money: Money) -> str:
    """`$5,760.00`; of money in whole minor units."""
    return _signed(Decimal(money.text), money.currency)


def price_text(price: Decimal | None, currency: str) -> str:
    """A unit price with all its decimals, at least the currency's own: `$1.10`, `$0.0125`; "" for none."""
    if price is None:
        return ""
    digits = max(get_currency_precision(currency), _decimals(price))
    return _signed(Decimal(f"{price:.{digits}f}"), currency)


def plain_price(price: Decimal | None, currency: str) -> str:
    """A unit price for programs, exact, with at least the currency's own decimals: `1.10`, `0.0125`; "" for none."""
    if price is None:
        return ""
    return f"{price:.{max(get_currency_precision(currency), _decimals(price))}f}"


def hours_text(resource_seconds: Fraction, places: int = 6) -> str:
    """Resource-hours with grouping and at most `places` decimals: `12.25`, `1,234.333333`."""
    return grouped(rounded_text(resource_seconds / 3600, places))


def grouped(number: str) -> str:
    """Plain decimal text as the locale writes it, with the decimals that it has: `1,234.50`, `1.234,50`."""
    return localized(f"{Decimal(number):,f}")


def localized(number: str) -> str:
    """A number that Python has grouped, as the locale writes it."""
    return number if locale().decimal == "." else number.translate(SWAPPED)


def country_name(code: str) -> str:
    """`Germany` of `DE`; the code itself where it is none that is known."""
    return _country_name(code, locale().name) if code else ""


@cache
def _country_name(code: str, locale_name: str) -> str:
    return str(Locale.parse(locale_name).territories.get(code, code))


def _signed(amount: Decimal, currency: str) -> str:
    if currency == TOKENS:
        shown = f"{amount:,f}"
        shown = shown.rstrip("0").rstrip(".") if "." in shown else shown
        one, many = TOKEN_NAMES.get(current(), ("token", "tokens"))
        return f"{localized(shown)} {one if abs(amount) == 1 else many}"
    number, sign = localized(f"{abs(amount):,f}"), "-" if amount < 0 else ""
    if locale().is_symbol_last:
        return f"{sign}{number}\N{NO-BREAK SPACE}{currency_symbol(currency)}"
    return f"{sign}{_symbol(currency)}{number}"


def currency_symbol(currency: str) -> str:
    """`$`, `CHF`: without a space."""
    return _bare_symbol(currency, locale().name)


@cache
def _bare_symbol(currency: str, locale_name: str) -> str:
    nothing = format_currency(0, currency, format="¤0", locale=locale_name, currency_digits=False)
    return nothing.removesuffix("0").strip("\N{NO-BREAK SPACE}")


@cache
def _symbol(currency: str) -> str:
    """`$`; a currency without a sign of its own stands apart from its number: `CHF 12.50`."""
    nothing = format_currency(0, currency, format="¤0", locale="en_US", currency_digits=False)
    return nothing.removesuffix("0").replace(currency, f"{currency}\N{NO-BREAK SPACE}", 1)


def _decimals(price: Decimal) -> int:
    exponent = price.normalize().as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0
