"""What follows day by day when an invoice is not paid, as docs/explanation/dunning.md tells it."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from billing.rules.dunning_defaults import (
    DEFAULTS,
    Policy,
    Terms,
    day_of,
    in_order,
    past_due_from,
    policy_of,
    problem,
    suspended_from,
    timeline,
    times_reopened,
)
from portal.env import ROOT

DUE = date(2026, 4, 15)
SUSPENDING = Policy(suspend=30, announce=7, past_due=14)


def marks(policy: Policy) -> list[str]:
    return [
        f"{mark.day:%d %b} {mark.step}{f' {mark.number}' if mark.number else ''}"
        for mark in timeline(policy, due_on=DUE)
    ]


def test_without_a_policy_there_are_three_reminders_and_nobody_is_suspended() -> None:
    assert marks(DEFAULTS) == [
        "18 Apr reminder 1",
        "25 Apr reminder 2",
        "06 May reminder 3",
        "14 Jul write-off",
    ]


def test_the_timeline_of_the_page_is_what_is_computed() -> None:
    page = (ROOT / "docs" / "explanation/dunning.md").read_text()
    table = re.search(r"<!-- timeline -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert table
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table[1].strip().splitlines()[2:]
    ]
    computed = [
        [
            f"{mark.day.day} {mark.day:%B}",
            str((mark.day - DUE).days),
            f"{mark.step} {mark.number or ''}".strip(),
        ]
        for mark in timeline(SUSPENDING, due_on=DUE)
    ]
    assert [[day, days, re.sub(r"`", "", step)] for day, days, step, _ in rows] == computed


def test_case_078_suspension_comes_after_its_announcement_however_late_that_was() -> None:
    assert suspended_from(SUSPENDING, due_on=DUE, announced_on=None) is None
    assert suspended_from(SUSPENDING, due_on=DUE, announced_on=date(2026, 5, 8)) == date(2026, 5, 15)
    assert suspended_from(SUSPENDING, due_on=DUE, announced_on=date(2026, 6, 1)) == date(2026, 6, 8)
    assert suspended_from(DEFAULTS, due_on=DUE, announced_on=date(2026, 5, 8)) is None


def test_past_due_is_the_day_after_unless_the_policy_gives_days_of_grace() -> None:
    assert past_due_from(DEFAULTS, due_on=DUE) == date(2026, 4, 16)
    assert past_due_from(SUSPENDING, due_on=DUE) == date(2026, 4, 29)


def test_a_change_of_policy_moves_nothing_that_is_due_already() -> None:
    everyone = [
        Terms(since=date(2026, 1, 1), reminders=(5,)),
        Terms(since=date(2026, 5, 1), reminders=(1, 2)),
    ]
    lab = [Terms(since=date(2026, 4, 1), suspend=60)]
    assert policy_of(DUE, everyone, lab) == Policy(reminders=(5,), suspend=60)
    assert policy_of(date(2026, 5, 1), everyone, lab) == Policy(reminders=(1, 2), suspend=60)
    assert policy_of(date(2025, 12, 31), everyone, lab) == DEFAULTS


def test_a_day_begins_at_eight_in_the_morning_where_the_invoice_was_issued() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    assert day_of(datetime(2026, 4, 17, 22, 59, tzinfo=UTC), tokyo) == date(2026, 4, 17)
    assert day_of(datetime(2026, 4, 17, 23, 0, tzinfo=UTC), tokyo) == date(2026, 4, 18)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (Policy(reminders=(10, 3)), "reminders are days after due, each later"),
        (Policy(reminders=(0,)), "reminders are days after due"),
        (Policy(retries=(0,)), "retries are days to the next try"),
        (Policy(suspend=5), "announce is 7 days before a suspension on day 5"),
        (Policy(suspend=30, emails=False), "e-mails are off, so that nobody is told of a suspension"),
        (Policy(suspend=20, past_due=30), "suspend is day 20, before the invoice is past due on day 30"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(policy: Policy, sentence: str) -> None:
    assert problem(policy).startswith(sentence)
    assert problem(SUSPENDING) == ""


def test_something_is_left_again_only_after_nothing_was() -> None:
    first, second, third = date(2026, 5, 1), date(2026, 5, 2), date(2026, 5, 3)
    back = [(first, 6000), (second, -6000)]
    assert times_reopened(10000, in_order(back, [])) == 0
    assert times_reopened(6000, in_order(back, [(third, 4000)])) == 0  # 100, 40, 100, 60
    assert times_reopened(6000, in_order(back, [(first, 4000)])) == 1  # 100, 40, 0, 60
    assert times_reopened(4000, in_order([*back, (third, 6000), (third, -6000)], [(second, 6000)])) == 1
