"""Numbers and moments as bundles write them, and amounts as people read them."""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Mapping
from fractions import Fraction
from time import gmtime, strftime, strptime
from typing import Any

Stated = Mapping[str, Any]  # as it stands in invoice.json


PLAIN = re.compile(r"-?[0-9]{1,60}([./][0-9]{1,60})?")


def number(text: Any) -> Fraction:
    """Digits, with a point or as a fraction. Any other way to write them is read otherwise by somebody else."""
    if isinstance(text, bool) or not PLAIN.fullmatch(str(text)):
        raise ValueError(f"{str(text)[:80]!r} is not written as numbers are here")
    return Fraction(str(text))


def whole(text: Any) -> int:
    """As `number`, without a part."""
    value = number(text)
    if value.denominator != 1:
        raise ValueError(f"{text} is no whole number")
    return value.numerator


FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def second(text: str) -> int:
    timestamp = timegm(strptime(text, FORMAT))
    if strftime(FORMAT, gmtime(timestamp)) != text:
        raise ValueError(f"{text[:80]!r} is not written as moments are here")
    return timestamp


def of_json(text: bytes) -> Any:
    """What stands in a file of JSON: numbers that are whole, and each name once."""
    return json.loads(text, object_pairs_hook=once, parse_int=whole, parse_float=whole, parse_constant=whole)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(f"it says twice what {max(values, key=[name for name, _ in pairs].count)} is")
    return values


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
