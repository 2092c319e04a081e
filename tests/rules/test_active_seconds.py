"""Suspended time has no position; it is spread so that no cut can lose or double a second."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.period import active_seconds


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, int]:
    started = draw(st.integers(0, 2**31))
    wall = draw(st.integers(0, 40_000_000))
    return started, started + wall, draw(st.integers(0, wall))


def test_a_run_that_was_never_suspended_holds_every_second() -> None:
    assert active_seconds(started=1000, ended=4600, suspended=0, since=0, until=10_000) == 3600
    assert active_seconds(started=1000, ended=4600, suspended=0, since=2000, until=2037) == 37


def test_an_hour_suspended_for_twenty_minutes_holds_forty() -> None:
    halves = [(0, 1800), (1800, 3600)]
    assert [
        active_seconds(started=0, ended=3600, suspended=1200, since=since, until=until)
        for since, until in halves
    ] == [1200, 1200]


def test_a_second_that_does_not_divide_goes_to_the_later_part() -> None:
    # 5 active seconds over 10: halves of 2.5 become 2 and 3, and all of them stay 5.
    assert active_seconds(started=0, ended=10, suspended=5, since=0, until=5) == 2
    assert active_seconds(started=0, ended=10, suspended=5, since=5, until=10) == 3


def test_a_job_of_zero_length_holds_nothing() -> None:
    assert active_seconds(started=50, ended=50, suspended=0, since=0, until=100) == 0


def test_what_lies_outside_the_run_holds_nothing() -> None:
    assert active_seconds(started=100, ended=200, suspended=30, since=0, until=100) == 0
    assert active_seconds(started=100, ended=200, suspended=30, since=200, until=300) == 0
    assert active_seconds(started=100, ended=200, suspended=30, since=180, until=120) == 0


@pytest.mark.parametrize(("ended", "suspended"), [(50, 0), (200, 101), (200, -1)])
def test_a_run_that_cannot_be_true_is_refused(ended: int, suspended: int) -> None:
    with pytest.raises(ValueError, match="cannot have been suspended"):
        active_seconds(started=100, ended=ended, suspended=suspended, since=0, until=1000)


@given(run=runs(), offsets=st.lists(st.integers(-1000, 40_001_000), max_size=20))
def test_any_cuts_add_up_to_the_whole(run: tuple[int, int, int], offsets: list[int]) -> None:
    started, ended, suspended = run
    cuts = sorted({started, ended, *(started + offset for offset in offsets)})
    parts = [
        active_seconds(started=started, ended=ended, suspended=suspended, since=since, until=until)
        for since, until in pairwise(cuts)
    ]
    assert sum(parts) == ended - started - suspended
    for part, (since, until) in zip(parts, pairwise(cuts), strict=True):
        assert 0 <= part <= until - since


@given(run=runs(), offsets=st.tuples(*[st.integers(-1000, 40_001_000)] * 3))
def test_a_later_cut_moves_no_second_between_other_parts(
    run: tuple[int, int, int], offsets: tuple[int, int, int]
) -> None:
    started, ended, suspended = run
    first, middle, last = sorted(started + offset for offset in offsets)

    def held(since: int, until: int) -> int:
        return active_seconds(started=started, ended=ended, suspended=suspended, since=since, until=until)

    assert held(first, middle) + held(middle, last) == held(first, last)
