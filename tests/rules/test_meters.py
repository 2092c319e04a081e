"""What a quantity costs at a price per hour."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.meters import Meter, PerUnit
from billing.rules.money import Money
from billing.rules.tax import tax_on

HOUR = 3600


def cost(price: str, hours: Fraction | int) -> str:
    return PerUnit(Decimal(price)).amount(Fraction(hours) * HOUR, "USD").rounded().text


def test_a_meter_says_what_it_counts() -> None:
    assert [(meter.value, meter.resource, meter.unit, meter.label) for meter in Meter] == [
        ("gpu-hour", "gpu", "GPU-hour", "GPU time"),
        ("cpu-core-hour", "cpu", "core-hour", "CPU time"),
        ("memory-gib-hour", "memory", "GiB-hour", "Memory time"),
        ("gpu-memory-gib-hour", "gpu-memory", "GiB-hour", "GPU memory time"),
        ("billing-hour", "billing", "billing-hour", "Billing time"),
    ]


def test_four_rented_gpus_cost_192_dollars_a_day_and_5760_a_month() -> None:
    assert cost("2.00", 4 * 24) == "192.00"
    assert cost("2.00", 4 * 24 * 30) == "5760.00"


@pytest.mark.parametrize(
    ("price", "hours", "amount"),
    [
        ("2.21", 1000, "2210.00"),
        ("1.65", 1000, "1650.00"),
        ("3.75", 1000, "3750.00"),
        ("0.81", 1000, "810.00"),
        ("2", 64, "128.00"),
        ("2", 8, "16.00"),
    ],
)
def test_a_team_pays_the_price_of_its_gpus(price: str, hours: int, amount: str) -> None:
    assert cost(price, hours) == amount


def test_seven_slices_for_an_hour_are_one_gpu_hour() -> None:
    slices = sum([Fraction(HOUR, 7)] * 7, Fraction(0))
    assert PerUnit(Decimal(12)).amount(slices, "USD") == Money.of(12, "USD")
    february_of_three_slices = Fraction(3, 7) * 49
    assert cost("12", february_of_three_slices) == "252.00"


def test_nothing_is_rounded_before_the_line() -> None:
    job = PerUnit(Decimal(2)).amount(Fraction(37), "USD")
    assert job == Money(Fraction(37, 1800), "USD")
    assert (job * 100_000).rounded().text == "2055.56"


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        (Decimal("-0.01"), "zero or more"),
        (Decimal("NaN"), "is a number"),
        (Decimal("Infinity"), "is a number"),
        (Decimal("0.0000000000001"), "at most 12 decimals"),
    ],
)
def test_case_042_what_is_no_price_is_refused(price: Decimal, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PerUnit(price)


def test_a_price_may_be_zero_or_tiny_but_never_a_float() -> None:
    assert PerUnit(Decimal(0)).amount(Fraction(HOUR), "USD") == Money.zero("USD")
    assert PerUnit(Decimal("0.000000000001")).unit_price == Decimal("1e-12")
    assert PerUnit(Decimal("1.10000000000000")).unit_price == Decimal("1.1")
    approximate: Any = 1.1
    with pytest.raises(TypeError):
        PerUnit(approximate)


@given(
    price=st.decimals(0, 1000, places=12),
    use=st.fractions(0, 10**9, max_denominator=1024),
    more=st.fractions(0, 10**9, max_denominator=1024),
)
def test_more_use_never_costs_less(price: Decimal, use: Fraction, more: Fraction) -> None:
    model = PerUnit(price)
    assert model.amount(use + more, "USD").rounded() >= model.amount(use, "USD").rounded()


def test_tax_is_taken_once_on_the_sum() -> None:
    three_lines = Money.of("0.33", "USD") * 3
    assert tax_on(three_lines, rate=Decimal(20)).text == "0.20"
    assert tax_on(-three_lines, rate=Decimal(20)).text == "-0.20"
    assert tax_on(Money.of(1234, "JPY"), rate=Decimal(10)).text == "123"
    assert tax_on(Money.of("100", "EUR"), rate=Decimal("8.1")).text == "8.10"
    assert tax_on(Money.of("100", "EUR"), rate=Decimal(0)).text == "0.00"


@pytest.mark.parametrize("rate", [Decimal(-1), Decimal("100.01"), Decimal("NaN")])
def test_a_tax_rate_is_a_percentage(rate: Decimal) -> None:
    with pytest.raises(ValueError, match="from 0 to 100 percent"):
        tax_on(Money.of(1, "USD"), rate=rate)
