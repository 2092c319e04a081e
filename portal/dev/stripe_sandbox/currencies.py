"""Amounts as Stripe takes them: whole minor units, with a least and a greatest amount per currency."""

from __future__ import annotations

from babel.numbers import list_currencies

from portal.dev.stripe_sandbox.errors import ApiError, invalid

GREATEST = 99_999_999  # eight digits
WITHOUT_DECIMALS = frozenset(
    "bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf".split()  # noqa: SIM905 - one reads it so
)
THREE_DECIMALS = frozenset({"bhd", "jod", "kwd", "omr", "tnd"})
WHOLE = frozenset({"isk", "ugx"})  # written with two decimals that have to be 0
LEAST = {  # minor units
    "usd": 50, "aed": 200, "aud": 50, "bgn": 100, "brl": 50, "cad": 50, "chf": 50, "czk": 1500, "dkk": 250,
    "eur": 50, "gbp": 30, "hkd": 400, "huf": 17500, "inr": 50, "jpy": 50, "mxn": 1000, "myr": 200, "nok": 300,
    "nzd": 50, "pln": 200, "ron": 200, "sek": 300, "sgd": 50, "thb": 1000,
}  # fmt: skip


def check(amount: int, currency: str, *, param: str = "amount") -> None:
    """Refuse what Stripe cannot charge."""
    check_currency(currency)
    if amount < 1:
        raise too_small("This value must be greater than or equal to 1.", param, "parameter_invalid_integer")
    if amount > GREATEST:
        raise invalid(
            f"Amount must be no more than {shown(GREATEST, currency)}.", param=param, code="amount_too_large"
        )
    if amount < LEAST.get(currency, 1):
        raise too_small(
            f"Amount must be at least {shown(LEAST[currency], currency)}.", param, "amount_too_small"
        )
    if currency in THREE_DECIMALS and amount % 10:
        raise invalid(f"Amounts in {currency} must end in 0: the last of the three decimals.", param=param)
    if currency in WHOLE and amount % 100:
        raise invalid(f"Amounts in {currency} must end in 00: it has no fractions any more.", param=param)


def check_currency(currency: str, *, param: str = "currency") -> None:
    if currency != currency.lower() or currency.upper() not in list_currencies():
        raise invalid(f"Invalid currency: {currency}. Give it as three lower-case letters.", param=param)


def too_small(message: str, param: str, code: str) -> ApiError:
    return invalid(message, param=param, code=code)


def shown(amount: int, currency: str) -> str:
    """`12.34 EUR`, `1234 JPY` or `1.234 KWD`."""
    decimals = 0 if currency in WITHOUT_DECIMALS else 3 if currency in THREE_DECIMALS else 2
    sign, digits = "-" if amount < 0 else "", str(abs(amount)).rjust(decimals + 1, "0")
    text = digits if decimals == 0 else f"{digits[:-decimals]}.{digits[-decimals:]}"
    return f"{sign}{text} {currency.upper()}"
