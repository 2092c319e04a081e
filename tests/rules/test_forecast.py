"""A forecast: the pace of the last seven whole days, and a band from how they differ."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.forecast import pace, root

CENTS = st.integers(0, 10**8).map(lambda cents: Fraction(cents, 100))
DAYS = st.lists(CENTS, min_size=3, max_size=12)


def test_seven_like_days_go_on_as_they_were_without_a_doubt() -> None:
    going = pace([Fraction(20)] * 7)
    assert going is not None
    coming = going.coming(Fraction(17))
    assert [coming.low, coming.expected, coming.high] == [340, 340, 340]


def test_the_band_is_two_deviations_of_what_such_days_add_up_to() -> None:
    going = pace([Fraction(30)] * 6 + [Fraction(66)])
    assert going is not None
    assert going.mean == Fraction(246, 7)
    assert going.variance == Fraction(1296, 7)
    coming = going.coming(Fraction(17))  # 2 × √(1296/7 × 17 × (1 + 17/7)) is 207.761244…
    assert coming.low is not None
    assert coming.high is not None
    assert round(coming.expected - coming.low, 6) == Fraction("207.761244")
    assert round(coming.high - coming.expected, 6) == Fraction("207.761244")


def test_three_days_tell_a_pace_but_no_band_and_two_tell_nothing() -> None:
    assert pace([Fraction(1)] * 2) is None
    going = pace([Fraction(1), Fraction(2), Fraction(3)])
    assert going is not None
    coming = going.coming(Fraction(10))
    assert coming.expected == 20
    assert coming.low is coming.high is None


def test_only_the_newest_week_counts() -> None:
    assert pace([Fraction(9999)] * 5 + [Fraction(1)] * 7) == pace([Fraction(1)] * 7)


def test_a_period_that_is_over_brings_nothing_and_none_ends_before_it() -> None:
    going = pace([Fraction(5), Fraction(1)] * 4)
    assert going is not None
    coming = going.coming(Fraction(0))
    assert [coming.low, coming.expected, coming.high] == [0, 0, 0]
    with pytest.raises(ValueError, match="does not end 1 days ago"):
        going.coming(Fraction(-1))


@given(DAYS, st.integers(0, 31 * 86_400).map(lambda seconds: Fraction(seconds, 86_400)))
def test_the_expected_lies_in_the_band_and_nothing_below_zero(days: list[Fraction], rest: Fraction) -> None:
    going = pace(days)
    assert going is not None
    coming = going.coming(rest)
    if coming.low is not None and coming.high is not None:
        assert 0 <= coming.low <= coming.expected <= coming.high


@given(st.integers(0, 10**18).map(lambda millionths: Fraction(millionths, 10**6)))
def test_a_root_is_found_to_a_billionth(of: Fraction) -> None:
    approximation = root(of)
    assert approximation * approximation <= of < (approximation + Fraction(1, 10**9)) ** 2
