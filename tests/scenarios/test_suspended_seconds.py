"""Suspended time has no position; it is spread so that no cut can lose or double a second."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.held import held_in_parts

pytestmark = pytest.mark.django_db
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, int]:
    started = draw(st.integers(0, 2**31))
    wall = draw(st.integers(0, 40_000_000))
    return started, started + wall, draw(st.integers(0, wall))


def test_a_run_that_was_never_suspended_holds_every_second() -> None:
    assert held_in_parts((0, 10_000), (2000, 2037), started=1000, ended=4600) == [3600, 37]


def test_an_hour_suspended_for_twenty_minutes_holds_forty() -> None:
    assert held_in_parts((0, 1800), (1800, 3600), started=0, ended=3600, suspended=1200) == [1200, 1200]


def test_a_second_that_does_not_divide_goes_to_the_later_part() -> None:
    # 5 active seconds over 10: halves of 2.5 become 2 and 3, and all of them stay 5.
    assert held_in_parts((0, 5), (5, 10), started=0, ended=10, suspended=5) == [2, 3]


def test_a_job_of_zero_length_holds_nothing() -> None:
    assert held_in_parts((0, 100), started=50, ended=50) == [0]


def test_what_lies_outside_the_run_holds_nothing() -> None:
    assert held_in_parts((0, 100), (200, 300), (180, 120), started=100, ended=200, suspended=30) == [0, 0, 0]


@MANY
@given(run=runs(), offsets=st.lists(st.integers(-1000, 40_001_000), max_size=20))
def test_any_cuts_add_up_to_the_whole(run: tuple[int, int, int], offsets: list[int]) -> None:
    started, ended, suspended = run
    parts = list(pairwise(sorted({started - 1, started, ended, *(started + offset for offset in offsets)})))
    durations = held_in_parts(*parts, started=started, ended=ended, suspended=suspended)
    assert sum(durations) == ended - started - suspended
    for seconds, (since, until) in zip(durations, parts, strict=True):
        assert 0 <= seconds <= until - since


@MANY
@given(run=runs(), offsets=st.tuples(*[st.integers(-1000, 40_001_000)] * 3))
def test_a_later_cut_moves_no_second_between_other_parts(
    run: tuple[int, int, int], offsets: tuple[int, int, int]
) -> None:
    started, ended, suspended = run
    first, middle, last = sorted(started + offset for offset in offsets)
    before, after, whole = held_in_parts(
        (first, middle), (middle, last), (first, last), started=started, ended=ended, suspended=suspended
    )
    assert before + after == whole
