"""Figures that add up still do once they are rounded, and none is far off."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from billing.rules.money import Money, nearest
from billing.rules.rounded_sums import rounded_parts, rounded_rows, rounded_table, rounded_units


@given(
    st.lists(st.fractions(-1000, 1000, max_denominator=5040), min_size=1, max_size=12),
    st.sampled_from(["JPY", "USD", "KWD"]),
    st.sampled_from([-1, 0, 1]),
)
def test_rounded_they_add_up_and_none_is_far_off(parts: list[Fraction], currency: str, more: int) -> None:
    unit = Money.from_minor(1, currency)
    total = Money(sum(parts, Fraction()), currency).rounded() + more * unit
    rounded = rounded_parts(parts, total)
    assert sum(rounded, Money.zero(currency)) == total
    assert all(
        abs(money.amount - part) <= 2 * unit.amount for money, part in zip(rounded, parts, strict=True)
    )


def test_thirds_of_a_cent_go_to_the_first() -> None:
    thirds = [Fraction(1, 3)] * 3
    assert [money.text for money in rounded_parts(thirds, Money.of("1.00", "USD"))] == [
        "0.34",
        "0.33",
        "0.33",
    ]
    assert rounded_parts([], Money.zero("USD")) == []


def test_rows_add_up_to_the_total_as_it_is_rounded() -> None:
    cents = [Money(Fraction(1, 3), "USD") for _row in range(3)]
    euro = Money.of("2.00", "EUR")
    rows = rounded_rows([[cents[0]], [cents[1], euro], [cents[2]], []], [euro, Money.of("1.00", "USD")])
    assert [[money.text for money in row] for row in rows] == [["0.34"], ["2.00", "0.33"], ["0.33"], []]


figures = st.one_of(st.just(Fraction(0)), st.fractions(0, 50, max_denominator=720))


@given(st.lists(st.tuples(figures, figures, figures), max_size=12))
def test_columns_add_up_and_what_is_nothing_stays_nothing(rows: list[tuple[Fraction, ...]]) -> None:
    exact = [sum(column, Fraction()) for column in zip(*rows, strict=True)] or [Fraction()] * 3
    totals = rounded_units(exact, nearest(sum(exact, Fraction())))
    table = rounded_table(rows, totals)
    assert [sum(column) for column in zip(*table, strict=True)] == (totals if rows else [])
    for row, cells in zip(rows, table, strict=True):
        assert all(abs(cell - value) < 1 for cell, value in zip(cells, row, strict=True))


def test_a_row_makes_up_for_what_its_cells_lost() -> None:
    """Ten jobs of 24 hours each, whose parts have no end: each of them still reads 24."""
    rows = [(Fraction(n * 240, 77), 2400 - Fraction(n * 240, 77)) for n in range(10)]
    totals = rounded_units([sum(column, Fraction()) for column in zip(*rows, strict=True)], 24000)
    assert [sum(row) for row in rounded_table(rows, totals)] == [2400] * 10
