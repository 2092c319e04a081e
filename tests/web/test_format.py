"""How amounts, quantities and moments are written."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from billing.rules.meters import Meter
from billing.rules.money import Money
from portal.web import format as say

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        (Fraction(123456789, 100), "USD", "$1,234,567.89"),
        (Fraction(0), "EUR", "€0.00"),
        (Fraction(-5), "USD", "-$5.00"),
        (Fraction(1, 1800), "USD", "$0.000556"),
        (Fraction(-1, 1800), "USD", "-$0.000556"),
        (Fraction(1, 10**9), "USD", "< $0.000001"),
        (Fraction(1, 200), "USD", "$0.01"),
        (Fraction(12345), "JPY", "¥12,345"),
        (Fraction(1, 3), "JPY", "¥0.333333"),
        (Fraction(12345, 1000), "KWD", "KWD\N{NO-BREAK SPACE}12.345"),
        (Fraction(-1200), "AFN", "-AFN\N{NO-BREAK SPACE}1,200.00"),
    ],
)
def test_money(amount: Fraction, currency: str, shown: str) -> None:
    assert say.money(Money(amount, currency)) == shown


def test_an_amount_before_rounding_says_when_it_is_cut() -> None:
    assert say.exact_money(Money(Fraction(1, 3), "USD")) == "≈ $0.333333"
    assert say.exact_money(Money(Fraction(1, 8), "USD")) == "$0.125"
    assert say.exact_money(Money(Fraction(12), "USD")) == "$12.00"


def test_amounts_of_two_currencies_are_not_added() -> None:
    assert say.sums([Money.of(3, "EUR"), Money.of(12, "USD")]) == "€3.00 + $12.00"
    assert say.sums([]) == "–"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (Fraction(3600), "1.00"),
        (Fraction(4444444), "1,234.57"),
        (Fraction(1), "< 0.01"),
        (Fraction(0), "0.00"),
        (Fraction(5400), "1.50"),
    ],
)
def test_hours_have_two_decimals(seconds: Fraction, shown: str) -> None:
    assert say.hours(seconds) == shown


def test_seconds_are_exact() -> None:
    assert say.seconds(Fraction(57600)) == "57,600"
    assert say.seconds(Fraction(57600, 7)) == "57,600/7"


def test_moments_are_local() -> None:
    summer, later = datetime(2026, 7, 1, 22, 30, tzinfo=UTC), datetime(2026, 7, 2, 1, 0, 5, tzinfo=UTC)
    assert say.moment(summer, BERLIN) == "2 Jul 2026, 00:30"
    assert say.second(later, BERLIN) == "2 Jul 2026, 03:00:05"
    assert say.second(summer, ZoneInfo("UTC")) == "1 Jul 2026, 22:30:00"


@pytest.mark.parametrize(
    ("units", "share", "meter", "shown"),
    [
        (57_600, Fraction(1), Meter.GPU_HOUR, "57,600 GPU-seconds"),
        (57_600, Fraction(1, 7), Meter.GPU_HOUR, "57,600 GPU-seconds × 1/7"),
        (26_292_000, Fraction(1, 1000), Meter.CPU_CORE_HOUR, "26,292,000 millicore-seconds ÷ 1,000"),
        (86_400, Fraction(1, 1024), Meter.MEMORY_GIB_HOUR, "86,400 MiB-seconds ÷ 1,024"),
    ],
)
def test_what_was_held_is_said_in_the_unit_it_was_counted_in(
    units: int, share: Fraction, meter: Meter, shown: str
) -> None:
    assert say.usage(units, share, meter) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "00:00:00"), (3_661, "01:01:01"), (86_399, "23:59:59"), (187_200, "2 d 04:00:00")],
)
def test_durations(seconds: int, shown: str) -> None:
    assert say.duration(seconds) == shown


def test_counts_and_parts() -> None:
    assert say.counted(1, "job") == "1 job"
    assert say.counted(1204, "job") == "1,204 jobs"
    assert say.percent(Fraction(1), Fraction(3)) == "33.3 %"
    assert say.percent(Fraction(1), Fraction(0)) == "–"
    assert say.symbol("USD") == "$"
