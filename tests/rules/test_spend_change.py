"""Why spend changed: number and length of runs, price and mix, which always add up."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.spend_change import (
    Parts,
    Runs,
    Use,
    parts_of,
    split_volume,
    total_use,
)
from tests.documentation import number, table

PAGE = "how-to/cost-explorer.md"
amounts = st.fractions(0, 1000, max_denominator=5040)
uses = st.builds(lambda quantity, price: Use(quantity, quantity * price), amounts, amounts)
ranges = st.dictionaries(st.sampled_from("abcde"), uses)


def use(quantity: int, price: str) -> Use:
    return Use(Fraction(quantity), quantity * Fraction(price))


def test_the_documented_group() -> None:
    before: dict[str, Use] = {}
    after: dict[str, Use] = {}
    for row in table(PAGE, "A group, worked out"):
        for uses_of, when in ((before, "earlier"), (after, "later")):
            hours, price = number(row[f"hours {when}"]), number(row[f"price {when}"])
            uses_of[row["item"]] = Use(hours, hours * price)
    parts = parts_of(before, after)
    runs = Runs(earlier=5, later=6)  # as the sentence below the table has it
    split = split_volume(parts.volume, old=total_use(before), new=total_use(after), runs=runs)
    assert split is not None
    computed = {
        "number of runs": split[0],
        "length of runs": split[1],
        "price": parts.price,
        "mix": parts.mix,
        "all": parts.total,
    }
    assert computed == {row["part"]: number(row["amount"]) for row in table(PAGE, "Its parts")}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a100": use(100, "2")}, {"a100": use(150, "2")}, (100, 0, 0)),
        ({"a100": use(100, "2")}, {"a100": use(100, "3")}, (0, 100, 0)),
        ({"a100": use(100, "2")}, {"a100": use(50, "2"), "h100": use(50, "4")}, (0, 0, 100)),
        ({}, {"a100": use(100, "2")}, (200, 0, 0)),
        ({"a100": use(100, "2")}, {}, (-200, 0, 0)),
        ({"a100": use(100, "0")}, {"a100": use(200, "1")}, (0, 200, 0)),
        ({}, {}, (0, 0, 0)),
    ],
)
def test_each_part_alone(before: dict[str, Use], after: dict[str, Use], expected: tuple[int, ...]) -> None:
    assert parts_of(before, after) == Parts(*map(Fraction, expected))


@given(ranges, ranges)
def test_the_parts_always_add_up(before: dict[str, Use], after: dict[str, Use]) -> None:
    parts = parts_of(before, after)
    difference = sum(one.cost for one in after.values()) - sum(one.cost for one in before.values())
    assert parts.volume + parts.price + parts.mix == difference
    back = parts_of(after, before)
    assert back.total == -difference


@given(ranges, ranges, st.integers(1, 50), st.integers(1, 50))
def test_number_and_length_of_runs_add_up_to_the_volume(
    before: dict[str, Use], after: dict[str, Use], earlier: int, later: int
) -> None:
    volume = parts_of(before, after).volume
    split = split_volume(volume, old=total_use(before), new=total_use(after), runs=Runs(earlier, later))
    assert split is not None
    assert sum(split) == volume


@pytest.mark.parametrize(
    ("hours", "runs", "expected"),
    [
        ((10, 20), (5, 10), (20, 0)),  # twice as many, as long as before
        ((10, 20), (5, 5), (0, 20)),  # as many, twice as long
        ((10, 10), (5, 10), (20, -20)),  # twice as many, half as long
        ((0, 20), (0, 10), (40, 0)),
        ((10, 0), (5, 0), (-20, 0)),
        ((10, 20), (0, 10), None),
        ((10, 20), (5, 0), None),
    ],
)
def test_the_two_parts_of_the_volume(
    hours: tuple[int, int], runs: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    old, new = (use(quantity, "2") for quantity in hours)
    volume = parts_of({"a100": old}, {"a100": new}).volume
    parts = (Fraction(expected[0]), Fraction(expected[1])) if expected else None
    assert split_volume(volume, old=old, new=new, runs=Runs(*runs)) == parts
