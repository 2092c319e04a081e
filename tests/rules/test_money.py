"""Money is exact until it becomes a line, and nothing is lost when it is shared."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.money import (
    CurrencyMismatchError,
    Money,
    decimal_of,
    decimal_text,
    exponent,
    is_currency,
    rounded_text,
    split,
)

FRACTIONS = st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**7)


def usd(amount: str) -> Money:
    return Money.of(amount, "USD")


def test_a_price_times_hours_keeps_every_digit() -> None:
    assert usd("1.10") * Fraction(1, 3) * 3 == usd("1.10")
    assert 2 * usd("0.000000000001") == usd("0.000000000002")
    assert usd("1.15") * Decimal(100) == usd("115")


def test_a_float_is_refused_wherever_it_tries_to_get_in() -> None:
    approximate: Any = 1.1
    with pytest.raises(TypeError):
        Money.of(approximate, "USD")
    with pytest.raises(TypeError):
        Money(approximate, "USD")
    with pytest.raises(TypeError):
        Money.from_minor(approximate, "USD")
    with pytest.raises(TypeError):
        usd("1.10") * approximate
    with pytest.raises(TypeError):
        usd("1.10") + approximate


@pytest.mark.parametrize("text", ["", "1,10", "1.", ".5", "1e3", "1/3", "NaN", "1_000", "١", " 1", "1" * 101])
def test_text_that_is_no_plain_decimal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount"):
        usd(text)
    with pytest.raises(ValueError, match="is not an amount"):
        decimal_of(text)


@pytest.mark.parametrize("price", [Decimal("NaN"), Decimal("Infinity")])
def test_what_is_no_number_is_no_money(price: Decimal) -> None:
    with pytest.raises(ValueError, match="is not an amount"):
        Money.of(price, "USD")


def test_two_currencies_never_meet() -> None:
    eur = Money.of(1, "EUR")
    with pytest.raises(CurrencyMismatchError, match="USD does not go with EUR"):
        usd("1") + eur
    with pytest.raises(CurrencyMismatchError):
        usd("1") - eur
    with pytest.raises(CurrencyMismatchError):
        assert usd("1") < eur
    with pytest.raises(CurrencyMismatchError):
        assert usd("1") >= eur
    assert usd("1") != eur


def test_amounts_are_ordered_and_summed() -> None:
    assert usd("1.10") < usd("1.2") <= usd("1.20") < usd("3")
    assert sum([usd("1.10"), usd("2.20"), -usd("0.30")], Money.zero("USD")) == usd("3")


@pytest.mark.parametrize(
    ("exact", "currency", "minor"),
    [
        ("0.005", "USD", 1),
        ("-0.005", "USD", -1),
        ("0.00499999999999999999999999999999999", "USD", 0),
        ("2.675", "USD", 268),
        ("2.665", "USD", 267),
        ("1234.5", "JPY", 1235),
        ("5.1245", "KWD", 5125),
        ("12345678901234567890123456789012.345", "USD", 1234567890123456789012345678901235),
    ],
)
def test_a_half_is_rounded_away_from_zero(exact: str, currency: str, minor: int) -> None:
    with localcontext(prec=3):
        assert Money.of(exact, currency).rounded().minor == minor


def test_what_is_not_rounded_has_no_minor_units() -> None:
    assert Money.from_minor(1234, "USD") == usd("12.34")
    assert usd("12.34").minor == 1234
    with pytest.raises(ValueError, match="whole number of minor units"):
        assert usd("12.345").minor


@given(amount=FRACTIONS)
def test_a_refund_mirrors_its_charge_and_rounding_moves_half_a_cent_at_most(amount: Fraction) -> None:
    money = Money(amount, "USD")
    assert (-money).rounded() == -money.rounded()
    assert abs(money.rounded().amount - amount) <= Fraction(1, 200)
    assert money.rounded().rounded() == money.rounded()


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [
        (576000, "USD", "5760.00"),
        (-5, "USD", "-0.05"),
        (0, "USD", "0.00"),
        (1234, "JPY", "1234"),
        (5124, "KWD", "5.124"),
    ],
)
def test_an_amount_is_written_with_the_decimals_of_its_currency(minor: int, currency: str, text: str) -> None:
    assert Money.from_minor(minor, currency).text == text


def test_currencies_are_those_of_iso_4217_in_circulation() -> None:
    assert [exponent(code) for code in ("USD", "EUR", "JPY", "ISK", "KWD", "TND")] == [2, 2, 0, 0, 3, 3]
    assert is_currency("CHF")
    assert (is_currency("CLF"), Money.of("1.2345", "CLF").minor) == (True, 12345)  # Chile's unit of account
    for absent in ("usd", "US", "XXX", "XAU", "DEM", "BTC", ""):
        assert not is_currency(absent)
    with pytest.raises(ValueError, match="'XXX' is not a currency"):
        Money.of(1, "XXX")


def test_ten_dollars_shared_by_three_projects_stay_ten_dollars() -> None:
    assert [share.minor for share in split(usd("10"), [1, 1, 1])] == [334, 333, 333]
    assert [share.minor for share in split(usd("-10"), [1, 1, 1])] == [-334, -333, -333]


def test_a_cent_left_over_goes_to_the_share_that_lost_most() -> None:
    # 1.00 by 1:2:4 is 14.28…, 28.57…, 57.14… cents: the second lost most.
    assert [share.minor for share in split(usd("1"), [1, 2, 4])] == [14, 29, 57]
    assert [share.minor for share in split(Money.of(5, "JPY"), [0, 1, 1])] == [0, 3, 2]


@pytest.mark.parametrize("weights", [[], [0, 0], [2, -1]])
def test_weights_that_share_nothing_out_are_refused(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="weights"):
        split(usd("1"), weights)


@given(
    minor=st.integers(-(10**12), 10**12),
    weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=12).filter(any),
)
def test_a_split_loses_nothing(minor: int, weights: list[int]) -> None:
    shares = split(Money.from_minor(minor, "USD"), weights)
    assert sum(share.minor for share in shares) == minor
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share.minor - Fraction(minor * weight, sum(weights))) < 1


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (Fraction(1, 4), None, "0.25"),
        (Fraction(2880), None, "2880"),
        (Fraction(0), 6, "0"),
        (Fraction(1, 1024), 6, "0.0009765625"),
        (Fraction(-1, 8), None, "-0.125"),
        (Fraction(1, 3), 6, "0.333333"),
        (Fraction(2, 3), 6, "0.666667"),
        (Fraction(-2, 3), 0, "-1"),
        (Fraction(1, 3), 0, "0"),
        (Fraction(2999999999, 3000000000), 6, "1"),
        (Fraction(-1, 3000), 2, "0"),
        (Fraction(10**24), None, "1000000000000000000000000"),
    ],
)
def test_a_quantity_is_written_exactly_where_it_can_be(
    value: Fraction, places: int | None, text: str
) -> None:
    assert decimal_text(value, places) == text


def test_a_third_is_never_shortened_unnoticed() -> None:
    with pytest.raises(ValueError, match="no finite decimal form"):
        decimal_text(Fraction(1, 3))


@given(digits=st.integers(-(10**15), 10**15), places=st.integers(0, 12))
def test_decimal_text_reads_back_as_the_same_number(digits: int, places: int) -> None:
    value = Fraction(digits, 10**places)
    assert Fraction(decimal_text(value)) == value


def test_a_quantity_is_printed_with_all_its_decimals_where_it_has_to_be() -> None:
    assert rounded_text(Fraction(5, 2), 2) == "2.5"
    assert rounded_text(Fraction(5, 2), 2, fixed=True) == "2.50"
    assert rounded_text(Fraction(3), 2, fixed=True) == "3.00"
