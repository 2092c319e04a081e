"""Prices for hours of the week: when a window is open, whatever clocks do."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.hours import (
    DAY,
    Hours,
    HoursZone,
    Window,
    as_terms,
    days_of,
    of_terms,
    seconds_of,
    slices,
)

BERLIN, KATHMANDU = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kathmandu")
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/Los_Angeles",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "America/Havana",
)


def hours(*windows: str, zone: str = "tenant") -> Hours:
    """`"mon-fri 22:00-06:00"` each."""
    window_terms = []
    for window in windows:
        days, _, clock = window.partition(" ")
        begins, _, ends = clock.partition("-")
        window_terms.append({"days": days, "from": begins, "to": ends})
    schedule = of_terms({"zone": zone, "windows": window_terms})
    assert schedule is not None
    return schedule


def epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def open_in(which: Hours, since: str, until: str, zone: ZoneInfo) -> list[tuple[str, str]]:
    return [
        (
            f"{datetime.fromtimestamp(start, UTC):%m-%d %H:%M}",
            f"{datetime.fromtimestamp(end, UTC):%m-%d %H:%M}",
        )
        for start, end in which.between(epoch(since), epoch(until), zone=zone)
    ]


def test_a_window_that_crosses_midnight_belongs_to_the_day_on_which_it_starts() -> None:
    """13 March 2026 is a Friday."""
    nights = hours("mon-fri 22:00-06:00")

    assert open_in(nights, "2026-03-12 12:00", "2026-03-17 00:00", ZoneInfo("UTC")) == [
        ("03-12 22:00", "03-13 06:00"),
        ("03-13 22:00", "03-14 06:00"),  # Friday's, on Saturday morning
        ("03-16 22:00", "03-17 00:00"),
    ]


@pytest.mark.parametrize(
    ("since", "until", "length"),
    [
        ("2026-03-27 12:00", "2026-03-28 12:00", 8),
        ("2026-03-28 12:00", "2026-03-29 12:00", 7),  # 02:00 is 03:00
        ("2026-10-24 12:00", "2026-10-25 12:00", 9),  # 03:00 is 02:00
    ],
)
def test_case_005_a_night_has_seven_eight_or_nine_hours(since: str, until: str, length: int) -> None:
    ((start, end),) = hours("mon-sun 22:00-06:00").between(epoch(since), epoch(until), zone=BERLIN)

    assert end - start == length * 3600


def test_case_005_a_border_in_a_gap_is_the_jump_and_one_in_a_fold_comes_first() -> None:
    gap = ("2026-03-29 00:00", "2026-03-29 12:00")  # clocks jump at 01:00 UTC from 02:00 to 03:00
    assert open_in(hours("sun 00:30-02:30"), *gap, BERLIN) == [("03-29 00:00", "03-29 01:00")]
    assert open_in(hours("sun 02:30-04:00"), *gap, BERLIN) == [("03-29 01:00", "03-29 02:00")]
    assert open_in(hours("sun 02:10-02:50"), *gap, BERLIN) == []
    fold = ("2026-10-24 22:00", "2026-10-25 12:00")  # 02:30 is at 00:30 and at 01:30 UTC
    assert open_in(hours("sun 01:00-02:30"), *fold, BERLIN) == [("10-24 23:00", "10-25 00:30")]
    assert open_in(hours("sun 02:30-04:00"), *fold, BERLIN) == [("10-25 00:30", "10-25 03:00")]


def test_case_008_the_clock_is_that_of_the_zone() -> None:
    night = hours("mon-sun 00:00-06:00")

    assert open_in(night, "2026-03-10 12:00", "2026-03-11 12:00", KATHMANDU) == [
        ("03-10 18:15", "03-11 00:15")
    ]


@given(
    start=st.integers(0, DAY - 1),
    length=st.integers(1, DAY - 1),
    zone=st.sampled_from(ZONES),
    since=st.integers(1_500_000_000, 1_900_000_000),
)
def test_a_window_and_the_rest_of_the_week_are_all_of_the_week(
    start: int, length: int, zone: str, since: int
) -> None:
    """Whatever clocks do, each second is in exactly one of a day's windows that follow one another."""
    middle = (start + length) % DAY
    one = Hours((Window(tuple(range(7)), start, middle or DAY),))
    other = Hours((Window(tuple(range(7)), middle, start or DAY),))
    until = since + 30 * DAY
    stretches = sorted(
        [*one.between(since, until, zone=ZoneInfo(zone)), *other.between(since, until, zone=ZoneInfo(zone))]
    )

    assert stretches[0][0] == since
    assert stretches[-1][1] == until
    assert all(before[1] == after[0] for before, after in pairwise(stretches))


@given(
    cuts=st.lists(st.integers(0, 20 * DAY), max_size=4),
    zone=st.sampled_from(ZONES),
    since=st.integers(1_500_000_000, 1_900_000_000),
)
def test_what_is_open_does_not_depend_on_how_far_one_looks(cuts: list[int], zone: str, since: int) -> None:
    which = hours("mon-fri 22:00-06:00", "sat-sun 00:00-24:00", "wed 05:30-07:15:30")
    borders = sorted({since, since + 20 * DAY, *(since + cut for cut in cuts)})
    whole = which.between(since, since + 20 * DAY, zone=ZoneInfo(zone))
    parts = [which.between(low, high, zone=ZoneInfo(zone)) for low, high in pairwise(borders)]

    assert sum(end - start for part in parts for start, end in part) == sum(
        end - start for start, end in whole
    )


def test_slices_tell_what_is_open_without_gaps() -> None:
    assert slices({7: [(10, 20), (40, 50)], 8: [(15, 40)]}, 0, 60) == [
        (0, 10, ()),
        (10, 15, (7,)),
        (15, 20, (7, 8)),
        (20, 40, (8,)),
        (40, 50, (7,)),
        (50, 60, ()),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("mon-fri", (0, 1, 2, 3, 4)), ("Sat, sun", (5, 6)), ("fri-mon", (0, 4, 5, 6)), ("wed", (2,))],
)
def test_days_are_written_as_people_do(text: str, expected: tuple[int, ...]) -> None:
    assert days_of(text) == expected


@pytest.mark.parametrize("text", ["", "monday", "mon-", "1-5", "mon;tue"])
def test_what_names_no_days_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names no days"):
        days_of(text)


@pytest.mark.parametrize("text", ["24:01", "7:00", "12", "12:60", "12:00:60", "-1:00", "noon"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no time of day"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"windows": []}, "without a window"),
        ({"windows": [{"days": "mon"}], "zone": "moon"}, "allowed: tenant, cluster"),
        ({"windows": [{"from": "08:00", "to": "08:00"}]}, "begin and end at 08:00"),
        ({"windows": [{"from": "24:00"}]}, "from 00:00 to 24:00"),
        ({"windows": [{"day": "mon"}]}, "is written like"),
        ({"spans": []}, "have `windows`"),
    ],
)
def test_case_042_hours_that_cannot_be_are_refused(terms: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        of_terms(terms)


def test_hours_are_stored_and_said_in_one_form() -> None:
    which = hours("fri,mon-wed 22:00-06:00", "sat-sun 00:00-00:00", zone="cluster")

    assert of_terms(as_terms(which)) == which
    assert str(which) == "mon-wed,fri 22:00-06:00 + sat-sun 00:00-24:00 by the cluster's clock"
    assert which.text == "Mon–Wed, Fri 22:00–06:00 and Sat–Sun 00:00–24:00 by the cluster's clock"
    assert which.zone is HoursZone.CLUSTER
    assert (of_terms({}), as_terms(None)) == (None, {})
