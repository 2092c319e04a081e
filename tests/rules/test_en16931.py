"""A line of an e-invoice: its quantity times its price is its amount, whatever the line was computed from."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.en16931 import FINEST, Item, can_state, item
from billing.rules.meters import PerUnit
from billing.rules.money import Money

HOUR = 3600
CURRENCIES = st.sampled_from(["EUR", "USD", "JPY"])


@pytest.mark.parametrize(
    ("amount", "seconds", "price", "expected"),
    [
        ("192.00", 96 * HOUR, "2.00", Item("96", "2", "1", in_hours=True)),
        ("666.67", 1_200_000, "2.00", Item("333.333", "2", "1", in_hours=True)),
        ("-62.00", 0, None, Item("-1", "62.00", "1", in_hours=False)),
        ("0.66", 1_200, "2.00", Item("0.33", "2", "1", in_hours=True)),
        ("0.65", 1_200, "2.00", Item("1", "0.65", "1", in_hours=False)),
        ("12.50", 1000 * HOUR, "0.0125", Item("1000", "0.0125", "1", in_hours=True)),
        ("12.35", 1000 * HOUR, "0.01234567", Item("1000", "123.4567", "10000", in_hours=True)),
        ("0.00", 5 * HOUR, "0", Item("5", "0", "1", in_hours=True)),
        ("-4.00", -2 * HOUR, "2.00", Item("-2", "2", "1", in_hours=True)),
    ],
)
def test_lines_by_hand(amount: str, seconds: int, price: str | None, expected: Item) -> None:
    money = Money.of(amount, "EUR")
    unit_price = Decimal(price) if price else None
    line_item = item(money, resource_seconds=Fraction(seconds), unit_price=unit_price)
    assert line_item == expected
    assert line_item.gives(money)


@given(
    seconds=st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=7),
    price=st.decimals(min_value=0, max_value=10**6, places=6),
    currency=CURRENCIES,
    off=st.integers(min_value=-2, max_value=2),
)
def test_the_product_is_the_amount(seconds: Fraction, price: Decimal, currency: str, off: int) -> None:
    owed = PerUnit(price).amount(seconds, currency).rounded()
    amount = Money.from_minor(owed.minor + off, currency)  # as corrections and shares come to another cent
    line_item = item(amount, resource_seconds=seconds, unit_price=price)
    assert line_item.gives(amount)
    assert Fraction(line_item.price) >= 0
    assert Fraction(line_item.quantity)
    assert len(line_item.price.partition(".")[2]) <= FINEST


def test_yen_that_were_rounded_far_are_a_piece() -> None:
    """A validator multiplies without knowing that a yen has no decimals."""
    nothing, exact = Money.of("0", "JPY"), Money.of("200", "JPY")
    assert item(nothing, resource_seconds=Fraction(3), unit_price=Decimal("66.67")) == Item(
        "1", "0", "1", in_hours=False
    )
    assert item(exact, resource_seconds=Fraction(2 * HOUR), unit_price=Decimal(100)).in_hours


def test_thousandths_cannot_be_stated() -> None:
    assert [can_state(currency) for currency in ("EUR", "JPY", "KWD")] == [True, True, False]
