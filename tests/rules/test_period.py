"""Billing periods: where they begin and end, in every zone and whatever the clocks do."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.period import (
    Period,
    billing_period,
    label,
    last_day,
    midnight,
    parse_month,
    period_starting_in,
    shifted,
)

ZONES = [
    "UTC",
    "America/Los_Angeles",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "America/Havana",
    "America/Asuncion",
    "America/St_Johns",
    "America/Toronto",
    "Pacific/Apia",
    "Australia/Lord_Howe",
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def month(text: str, zone: str, anchor_day: int = 1) -> Period:
    year, number = parse_month(text)
    return period_starting_in(year, number, zone=ZoneInfo(zone), anchor_day=anchor_day)


def periods(since: datetime, until: datetime, zone: str, anchor_day: int = 1) -> list[Period]:
    """The whole billing periods that touch the span, each found by the end of the one before."""
    billing_periods: list[Period] = []
    while since < until:
        billing_periods.append(billing_period(since, zone=ZoneInfo(zone), anchor_day=anchor_day))
        since = billing_periods[-1].end
    return billing_periods


def local_starts(since: str, until: str, zone: str, anchor_day: int) -> list[str]:
    billing_periods = periods(utc(since), utc(until), zone, anchor_day)
    return [period.start.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M") for period in billing_periods]


def test_case_001_the_last_instant_of_a_period_belongs_to_it_and_its_end_to_the_next() -> None:
    october = month("2017-10", "UTC")
    november = month("2017-11", "UTC")
    midnight = utc("2017-11-01 00:00:00")
    assert october.contains(midnight - timedelta(microseconds=1))
    assert not october.contains(midnight)
    assert november.contains(midnight)
    assert billing_period(midnight, zone=ZoneInfo("UTC"), anchor_day=1) == november


@pytest.mark.parametrize(
    ("text", "zone", "hours"),
    [
        ("2026-03", "America/Los_Angeles", 743),
        ("2026-11", "America/Los_Angeles", 721),
        ("2026-10", "Europe/Berlin", 745),
        ("2026-03", "Europe/Berlin", 743),
        ("2026-03", "UTC", 744),
    ],
)
def test_case_004_a_month_has_the_hours_that_pass_in_it(text: str, zone: str, hours: int) -> None:
    assert month(text, zone).seconds == hours * 3600


def test_case_005_a_midnight_that_is_skipped_is_the_first_instant_of_its_day() -> None:
    # Paraguay went from 30 September 2017 24:00 straight to 01:00.
    assert month("2017-10", "America/Asuncion").start == utc("2017-10-01 04:00:00")
    # Toronto went from 23:30 to 00:30 in 1919: the day begins at half past, between the full hours.
    toronto = period_starting_in(1919, 3, zone=ZoneInfo("America/Toronto"), anchor_day=31)
    assert toronto.start == utc("1919-03-31 04:30:00")


def test_case_005_a_day_that_is_skipped_starts_with_what_follows_it() -> None:
    # Samoa had no 30 December 2011.
    assert month("2011-12", "Pacific/Apia", 30).start == utc("2011-12-30 10:00:00")
    assert month("2011-12", "Pacific/Apia", 29).start == utc("2011-12-29 10:00:00")


def test_case_005_a_midnight_that_comes_twice_counts_once() -> None:
    # Havana sets its clocks from 01:00 back to 00:00 on 1 November 2026.
    november = month("2026-11", "America/Havana")
    assert november.start == utc("2026-11-01 04:00:00")
    assert month("2026-10", "America/Havana").end == november.start
    at_second_midnight = billing_period(
        utc("2026-11-01 05:00:00"), zone=ZoneInfo("America/Havana"), anchor_day=1
    )
    assert at_second_midnight == november


def test_case_005_a_clock_that_goes_back_over_midnight_opens_no_second_period() -> None:
    # St. John's went from 00:01 on 1 November 2009 back to 23:01 on 31 October.
    zone = ZoneInfo("America/St_Johns")
    reads_october_again = utc("2009-11-01 02:45:00")
    assert reads_october_again.astimezone(zone).month == 10
    november = billing_period(reads_october_again, zone=zone, anchor_day=1)
    assert november.start == utc("2009-11-01 02:30:00")
    assert november == month("2009-11", "America/St_Johns")


def test_case_006_an_anchor_on_the_31st_never_drifts() -> None:
    assert local_starts("2027-01-31 00:00:00", "2027-06-01 00:00:00", "UTC", 31) == [
        "2027-01-31 00:00",
        "2027-02-28 00:00",
        "2027-03-31 00:00",
        "2027-04-30 00:00",
        "2027-05-31 00:00",
    ]
    assert month("2028-02", "UTC", 31).start == utc("2028-02-29 00:00:00")
    assert month("2027-02", "UTC", 30).start == utc("2027-02-28 00:00:00")
    assert month("2027-12", "UTC", 31) == Period(utc("2027-12-31 00:00:00"), utc("2028-01-31 00:00:00"))


def test_case_007_a_leap_february_has_a_day_more() -> None:
    assert month("2028-02", "UTC").seconds == 696 * 3600
    assert month("2027-02", "UTC").seconds == 672 * 3600


def test_case_008_zones_off_the_full_hour_begin_at_their_own_midnight() -> None:
    assert month("2026-03", "Asia/Kolkata").start == utc("2026-02-28 18:30:00")
    assert month("2026-03", "Asia/Kathmandu").start == utc("2026-02-28 18:15:00")
    assert month("2026-03", "Asia/Kathmandu").seconds == 744 * 3600


@given(
    at=st.datetimes(datetime(1972, 1, 1), datetime(2037, 12, 31), timezones=st.just(UTC)),
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    anchor_day=st.integers(1, 31),
)
def test_every_instant_is_in_exactly_one_period(at: datetime, zone: ZoneInfo, anchor_day: int) -> None:
    period = billing_period(at, zone=zone, anchor_day=anchor_day)
    assert period.contains(at)
    after = billing_period(period.end, zone=zone, anchor_day=anchor_day)
    assert after.start == period.end
    last = period.end - timedelta(seconds=1)
    assert billing_period(last, zone=zone, anchor_day=anchor_day) == period
    assert timedelta(26) < period.end - period.start < timedelta(33)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("anchor_day", [1, 7, 15, 30, 31])
def test_periods_follow_one_another_without_gap_or_overlap(zone: str, anchor_day: int) -> None:
    since, until = utc("2009-12-30 12:34:56"), utc("2012-03-01 00:00:00")
    billing_periods = periods(since, until, zone, anchor_day)
    assert billing_periods[0].contains(since)
    assert all(earlier.end == later.start for earlier, later in pairwise(billing_periods))
    assert billing_periods[-1].start < until <= billing_periods[-1].end
    # one period per month, from December 2009 (November, where the anchor is the 31st) on
    assert len(billing_periods) in (26, 27, 28)


def test_the_name_of_a_period_is_what_people_call_it() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert label(month("2017-10", "Europe/Berlin"), berlin) == "October 2017"
    assert label(month("2017-10", "Europe/Berlin", 15), berlin) == "15 Oct \N{EN DASH} 14 Nov 2017"
    assert label(month("2017-12", "UTC", 15), ZoneInfo("UTC")) == "15 Dec 2017 \N{EN DASH} 14 Jan 2018"
    # a calendar month of UTC is none in Berlin
    assert label(month("2017-10", "UTC"), berlin) == "1 Oct \N{EN DASH} 1 Nov 2017"
    hours = Period(utc("2017-10-05 01:00:00"), utc("2017-10-05 22:00:00"))
    assert label(hours, berlin) == "5 Oct 2017"
    assert label(month("2017-10", "America/Asuncion"), ZoneInfo("America/Asuncion")) == "October 2017"


@pytest.mark.parametrize("text", ["2017-13", "2017-00", "0000-01", "9999-12"])
def test_a_month_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"There is no month {text}"):
        parse_month(text)


@pytest.mark.parametrize("text", ["2017", "2017-1", "October", "2017-10-01", " 2017-10", "２０１７-10", ""])
def test_a_month_that_is_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 2017-10"):
        parse_month(text)


def test_what_is_no_period_cannot_be_built() -> None:
    start = utc("2017-10-01 00:00:00")
    with pytest.raises(ValueError, match="starts before it ends"):
        Period(start, start)
    with pytest.raises(ValueError, match="in UTC"):
        Period(start.replace(tzinfo=None), start + timedelta(1))
    with pytest.raises(ValueError, match="in UTC"):
        Period(start, (start + timedelta(1)).astimezone(ZoneInfo("Europe/Berlin")))
    with pytest.raises(ValueError, match="whole seconds"):
        Period(start, start + timedelta(microseconds=1))


@pytest.mark.parametrize("anchor_day", [0, 32])
def test_an_anchor_is_a_day_of_the_month(anchor_day: int) -> None:
    with pytest.raises(ValueError, match="anchor day"):
        month("2017-10", "UTC", anchor_day)


def test_an_instant_without_a_zone_is_refused() -> None:
    naive = utc("2017-10-01 00:00:00").replace(tzinfo=None)
    with pytest.raises(ValueError, match="names no zone"):
        billing_period(naive, zone=ZoneInfo("UTC"), anchor_day=1)


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kathmandu"])
def test_the_last_day_that_can_be_written_has_a_midnight(zone: str) -> None:
    assert midnight(date(9999, 12, 31), zone=ZoneInfo(zone)).date() in (
        date(9999, 12, 30),
        date(9999, 12, 31),
    )


def test_a_midnight_is_where_a_period_anchored_on_its_day_starts() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for day in (date(2026, 3, 29), date(2026, 10, 25), date(2028, 2, 29)):
        start = period_starting_in(day.year, day.month, zone=berlin, anchor_day=day.day).start
        assert midnight(day, zone=berlin) == start


def test_the_last_day_is_the_day_before_also_where_clocks_skip_the_midnight_after_it() -> None:
    # In Paraguay 1 October 2017 began at one o'clock.
    for zone in ("America/Asuncion", "UTC", "Pacific/Apia"):
        september = month("2017-09", zone)
        assert last_day(september.end, zone=ZoneInfo(zone)) == date(2017, 9, 30)


def test_months_are_counted_over_years() -> None:
    assert [shifted((2026, 12), by) for by in (-12, -11, 0, 1, 13)] == [
        (2025, 12),
        (2026, 1),
        (2026, 12),
        (2027, 1),
        (2028, 1),
    ]
