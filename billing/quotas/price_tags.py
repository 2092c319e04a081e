"""Prices as quotas value use by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from billing.queries.costs import Tag, cost, tag


@dataclass(frozen=True, slots=True)
class PriceTag:
    """A price, whether it is paid out of wallets, and what each second costs by it, in major units."""

    tag: Tag
    is_prepaid: bool
    a_second: Fraction


class PriceTags(dict[int, PriceTag]):
    """By id."""

    def add(self, price: int | None, columns: Sequence[Any]) -> None:
        """By the columns of `billing_pricetag`, and whether wallets pay what it charges; once of each."""
        if price is not None and price not in self and columns[0] is not None:
            *columns, prepaid = columns
            one = tag(*columns)
            self[price] = PriceTag(one, prepaid, cost(one, Fraction(1)).amount)
