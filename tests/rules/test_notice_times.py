"""When e-mails reach people: one digest a day at their hour; quiet hours over midnight and over changed clocks."""

from __future__ import annotations

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from billing.rules.notice_times import NoticeTimes

BERLIN, SHANGHAI = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Shanghai")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "hour", "moment", "expected"),
    [
        (BERLIN, time(8), "2026-03-02 06:59", "2026-03-02 07:00"),
        (BERLIN, time(8), "2026-03-02 07:00", "2026-03-03 07:00"),  # the one of now has been sent
        (BERLIN, time(8), "2026-03-28 07:00", "2026-03-29 06:00"),  # summer time begins
        (BERLIN, time(2, 30), "2026-03-28 12:00", "2026-03-29 01:30"),  # that night has no 02:30: it is 03:30
        (BERLIN, time(2, 30), "2026-10-25 00:00", "2026-10-25 00:30"),  # the first of two
        (BERLIN, time(2, 30), "2026-10-25 00:30", "2026-10-26 01:30"),  # and not the second
        (SHANGHAI, time(8), "2026-03-02 01:00", "2026-03-03 00:00"),
    ],
)
def test_the_next_digest(zone: ZoneInfo, hour: time, moment: str, expected: str) -> None:
    times = NoticeTimes(zone, hour)
    assert times.next_digest(at(moment)) == at(expected)
    assert times.due(at(moment), digest=True) == at(expected)


@pytest.mark.parametrize(
    ("since", "until", "moment", "expected"),
    [
        (time(22), time(7), "2026-03-02 20:59", "2026-03-02 20:59"),
        (time(22), time(7), "2026-03-02 21:00", "2026-03-03 06:00"),  # 22:00 there
        (time(22), time(7), "2026-03-03 05:59", "2026-03-03 06:00"),
        (time(22), time(7), "2026-03-03 06:00", "2026-03-03 06:00"),
        (time(22), time(7), "2026-03-28 22:00", "2026-03-29 05:00"),  # summer time begins in that night
        (time(12), time(13), "2026-03-02 11:30", "2026-03-02 12:00"),
        (time(12), time(13), "2026-03-02 12:00", "2026-03-02 12:00"),
        (time(2), time(2, 30), "2026-10-25 01:10", "2026-10-25 01:10"),  # 02:10 for the second time
        (None, None, "2026-03-02 23:00", "2026-03-02 23:00"),
    ],
)
def test_the_end_of_quiet_hours(since: time | None, until: time | None, moment: str, expected: str) -> None:
    times = NoticeTimes(BERLIN, time(8), since, until)
    assert times.after_quiet(at(moment)) == at(expected)
    assert times.due(at(moment), digest=False) == at(expected)
