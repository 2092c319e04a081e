"""What burns first, what comes back, and when grants are due: for any grants and any amounts."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.wallet import Every, Grant, Piece, burn, due, give_back, granted

MARCH = date(2026, 3, 10)
BERLIN = ZoneInfo("Europe/Berlin")


def a_grant(
    key: int, left: int = 10, *, priority: int = 100, since: str = "2026-03-01", until: str = ""
) -> Grant:
    expires = date.fromisoformat(until) if until else None
    return Grant(key, left, priority, date.fromisoformat(since), expires)


grants = st.lists(
    st.builds(
        Grant,
        key=st.integers(1, 10**6),
        left=st.integers(0, 100),
        priority=st.integers(0, 3),
        usable_from=st.dates(date(2026, 1, 1), date(2026, 6, 1)),
        expires_on=st.none() | st.dates(date(2026, 1, 1), date(2026, 6, 1)),
    ),
    max_size=8,
    unique_by=lambda grant: grant.key,
)


def test_case_065_the_lowest_priority_burns_first_then_what_expires_first_then_the_oldest() -> None:
    old, young = a_grant(1, since="2026-01-01"), a_grant(2)
    expiring = a_grant(3, until="2026-04-01")
    first = a_grant(4, priority=1)
    assert burn(35, [old, young, expiring, first], day=MARCH) == [
        Piece(4, 10),
        Piece(3, 10),
        Piece(1, 10),
        Piece(2, 5),
    ]


def test_case_066_a_grant_pays_only_for_days_before_it_expires() -> None:
    gone = a_grant(1, until="2026-03-10")
    assert burn(3, [gone], day=date(2026, 3, 9)) == [Piece(1, 3)]
    assert burn(3, [gone], day=MARCH) == [Piece(None, 3)]


def test_a_grant_pays_for_no_day_before_it_was_given() -> None:
    assert burn(3, [a_grant(1, since="2026-03-11")], day=MARCH) == [Piece(None, 3)]


def test_nobody_uses_less_than_nothing() -> None:
    with pytest.raises(ValueError, match="Nobody can use -1"):
        burn(-1, [], day=MARCH)


def test_what_was_taken_last_comes_back_first() -> None:
    pieces = [Piece(1, 10), Piece(2, 5), Piece(None, 3)]
    assert give_back(6, pieces) == [Piece(None, 3), Piece(2, 3)]
    with pytest.raises(ValueError, match="1 more would return"):
        give_back(19, pieces)


@pytest.mark.parametrize(("balance", "gives"), [(0, 30), (70, 30), (80, 20), (100, 0), (120, 0), (-180, 30)])
def test_a_capped_grant_fills_up_and_forgives_no_debt(balance: int, gives: int) -> None:
    assert granted(30, cap=100, balance=balance) == gives


@given(amount=st.integers(0, 500), wallet_grants=grants)
def test_what_is_used_is_taken_in_full_and_never_from_what_a_grant_has_not(
    amount: int, wallet_grants: list[Grant]
) -> None:
    pieces = burn(amount, wallet_grants, day=MARCH)
    left = {grant.key: grant for grant in wallet_grants}
    assert sum(piece.amount for piece in pieces) == amount
    for piece in pieces:
        assert piece.amount > 0
        if piece.grant is not None:
            assert piece.amount <= left[piece.grant].left
            assert left[piece.grant].pays_for(MARCH)


@given(amount=st.integers(0, 500), wallet_grants=grants, part=st.integers(0, 500))
def test_giving_all_back_restores_every_grant(amount: int, wallet_grants: list[Grant], part: int) -> None:
    pieces = burn(amount, wallet_grants, day=MARCH)
    back = give_back(min(part, amount), pieces)
    rest = {piece.grant: piece.amount for piece in pieces}
    for piece in back:
        rest[piece.grant] -= piece.amount
    assert min(rest.values(), default=0) >= 0
    assert sum(rest.values()) == amount - min(part, amount)


def instants(every: Every, opened: str, until: str, after: str = "", zone: ZoneInfo = BERLIN) -> list[str]:
    def at(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    moments = due(
        every, opened=at(opened), after=at(after) if after else None, until=at(until), zone=zone, anchor_day=1
    )
    return [f"{moment.astimezone(UTC):%m-%d %H:%M}" for moment in moments]


def test_grants_are_due_at_the_opening_and_at_every_border_behind_it() -> None:
    assert instants(Every.ONCE, "2026-03-10 08:30", "2027-01-01") == ["03-10 08:30"]
    assert instants(Every.HOUR, "2026-03-10 08:30", "2026-03-10 10:00") == [
        "03-10 08:30",
        "03-10 09:00",
        "03-10 10:00",
    ]
    assert instants(Every.MONTH, "2026-03-10 08:30", "2026-05-01") == [
        "03-10 08:30",
        "03-31 22:00",
        "04-30 22:00",
    ]


def test_days_begin_at_midnights_of_the_zone_on_the_day_of_the_clock_change_too() -> None:
    assert instants(Every.DAY, "2026-03-28 12:00", "2026-03-31 00:00") == [
        "03-28 12:00",
        "03-28 23:00",
        "03-29 22:00",
        "03-30 22:00",
    ]


def test_what_was_given_is_not_due_again() -> None:
    assert instants(Every.ONCE, "2026-03-10", "2027-01-01", after="2026-03-10") == []
    assert instants(Every.DAY, "2026-03-10", "2026-03-12 23:00", after="2026-03-10 23:00") == [
        "03-11 23:00",
        "03-12 23:00",
    ]


@pytest.mark.parametrize(
    ("every", "after", "zone", "expected"),
    [
        (Every.DAY, "2026-03-10 23:00", "UTC", ["03-12 00:00", "03-13 00:00"]),
        (Every.DAY, "2026-03-10 23:00", "America/New_York", ["03-12 04:00", "03-13 04:00"]),
        (Every.DAY, "2026-03-10 23:00", "Asia/Tokyo", ["03-11 15:00", "03-12 15:00", "03-13 15:00"]),
        (Every.MONTH, "2026-02-28 23:00", "America/New_York", ["04-01 04:00"]),
        (Every.MONTH, "2026-02-28 23:00", "Asia/Tokyo", ["03-31 15:00"]),
    ],
)
def test_a_tenant_that_moves_is_given_no_day_and_no_month_twice(
    every: Every, after: str, zone: str, expected: list[str]
) -> None:
    until = "2026-04-02" if every is Every.MONTH else "2026-03-13 16:00"
    assert instants(every, "2026-01-01", until, after=after, zone=ZoneInfo(zone)) == expected


@given(
    every=st.sampled_from(list(Every)),
    opened=st.datetimes(datetime(2026, 1, 1), datetime(2026, 3, 1)),
    hours=st.integers(0, 2000),
    stop=st.integers(0, 2000),
)
def test_a_stop_in_between_changes_nothing(every: Every, opened: datetime, hours: int, stop: int) -> None:
    began = opened.replace(tzinfo=UTC, microsecond=0)
    until = began + timedelta(hours=hours)
    options = {"opened": began, "zone": BERLIN, "anchor_day": 31}
    whole = list(due(every, after=None, until=until, **options))  # type: ignore[arg-type]
    first = list(due(every, after=None, until=min(until, began + timedelta(hours=stop)), **options))  # type: ignore[arg-type]
    rest = list(due(every, after=first[-1], until=until, **options))  # type: ignore[arg-type]
    assert first + rest == whole
