"""The days of a tenant that moves: each instant has the day that the clock of its billing period shows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from billing.rules.days import ALWAYS, NEVER, Days
from billing.rules.period import Period, billing_period, midnight

BERLIN, NEW_YORK, TOKYO = (ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Asia/Tokyo"))
APRIL = date(2026, 4, 1)


def march_in(zone: ZoneInfo) -> Period:
    return billing_period(datetime(2026, 3, 10, tzinfo=UTC), zone=zone, anchor_day=1)


def test_a_tenant_that_never_moved_has_one_midnight() -> None:
    days = Days(BERLIN)
    assert days.between(APRIL, None) == [(midnight(APRIL, zone=BERLIN), NEVER)]
    assert days.between(None, None) == [(ALWAYS, NEVER)]


def test_what_began_with_a_period_begins_with_it_after_a_move() -> None:
    days = Days(NEW_YORK, [(march_in(BERLIN), BERLIN)])
    assert days.between(date(2026, 3, 1), None) == [(datetime(2026, 2, 28, 23, tzinfo=UTC), NEVER)]


def test_moved_west_the_first_of_april_begins_when_it_does_there() -> None:
    days = Days(NEW_YORK, [(march_in(BERLIN), BERLIN)])
    assert days.between(APRIL, None) == [(datetime(2026, 4, 1, 4, tzinfo=UTC), NEVER)]


def test_moved_east_it_begins_with_the_next_period() -> None:
    """It is the 1st in Tokyo while March still runs in New York."""
    days = Days(TOKYO, [(march_in(NEW_YORK), NEW_YORK)])
    assert days.between(APRIL, None) == [(datetime(2026, 4, 1, 4, tzinfo=UTC), NEVER)]


ZONES = ["Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "Pacific/Niue", "Asia/Kathmandu", "UTC"]


@settings(deadline=None)  # reading zones from disk takes long the first time
@given(
    own=st.sampled_from(ZONES),
    moves=st.lists(st.sampled_from(ZONES), min_size=1, max_size=4),
    first=st.none() | st.dates(date(2026, 1, 25), date(2026, 6, 5)),
    length=st.none() | st.integers(1, 40),
    minutes=st.lists(st.integers(-60 * 24 * 20, 60 * 24 * 160), max_size=40),
)
def test_an_instant_belongs_to_the_days_that_its_clock_shows(
    own: str, moves: list[str], first: date | None, length: int | None, minutes: list[int]
) -> None:
    at = datetime(2026, 2, 1, tzinfo=UTC)
    others = []
    for zone in map(ZoneInfo, moves):
        end = billing_period(at, zone=zone, anchor_day=1).end
        others.append((Period(at, end), zone))
        at = end
    until = first + timedelta(length) if first and length else None
    spans = Days(ZoneInfo(own), others).between(first, until)
    assert all(low < high for low, high in spans)
    assert all(one[1] < other[0] for one, other in pairwise(spans))
    for minute in minutes:
        moment = datetime(2026, 2, 1, tzinfo=UTC) + timedelta(minutes=minute)
        zone = next((zone for period, zone in others if period.contains(moment)), ZoneInfo(own))
        day = moment.astimezone(zone).date()
        is_inside = (first is None or day >= first) and (until is None or day < until)
        assert is_inside == any(low <= moment < high for low, high in spans), (moment, day)
