"""Ann's invoice was settled and is due anew, since what settled it went back: she is told again, and not twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from billing.dunning import dunning_run, send
from billing.models import Letter
from billing.receivables import dunning_policies, write_offs
from portal.core.tenants.models import Tenant
from tests.builders import at
from tests.collecting import Counter, a_counter
from tests.scenarios.test_dunning_letters import body, goes_by, pay, subjects

pytestmark = pytest.mark.django_db(transaction=True)

FIRST = "A reminder: invoice INV-2026-0001 is not paid yet"
AGAIN = "Invoice INV-2026-0001 is to be paid again"


@pytest.fixture
def counter(settings: Any) -> Iterator[Counter]:
    """March's invoice over 4.00 was due on 15 April; it is that day, and nobody is ever suspended."""
    settings.CLUSTERTAB_SENDS_MAIL = True
    with a_counter(now=at("2026-04-15 09:00")) as scenario:
        Tenant.objects.update(email="bills@vision.example")
        yield scenario


def goes_back(counter: Counter, amount: str = "-4.00") -> None:
    pay(counter, amount)


def test_a_transfer_that_goes_back_after_the_last_reminder_is_told_once(counter: Counter) -> None:
    goes_by(counter, 30)
    assert len(subjects()) == 3
    pay(counter)
    goes_by(counter, 10)
    goes_back(counter)
    goes_by(counter, 40)
    assert subjects()[3:] == [AGAIN]
    assert "Invoice INV-2026-0001, due on 15 April 2026, was settled for a time." in body()
    assert "so $4.00 of it are to be paid again" in body()


def test_each_time_it_is_told_anew(counter: Counter) -> None:
    goes_by(counter, 30)
    for _ in range(2):
        goes_by(counter)
        pay(counter)
        goes_by(counter)
        goes_back(counter)
        goes_by(counter, 5)
    assert subjects()[3:] == [AGAIN, AGAIN]


def test_the_steps_that_were_not_reached_yet_follow_on_their_days(counter: Counter) -> None:
    goes_by(counter, 4)
    pay(counter)
    goes_by(counter)
    goes_back(counter)
    goes_by(counter)
    assert subjects() == [FIRST, AGAIN]
    goes_by(counter, 40)
    second, third = (f"Reminder {step}: invoice INV-2026-0001 is not paid yet" for step in (2, 3))
    assert subjects() == [FIRST, AGAIN, second, third]
    assert Letter.objects.exclude(state="sent").count() == 0


def test_who_paid_in_time_and_was_never_reminded_is_told_too(counter: Counter) -> None:
    pay(counter)
    goes_by(counter, 30)
    assert subjects() == []
    goes_back(counter)
    goes_by(counter)
    assert subjects() == [AGAIN]


def test_a_write_off_that_is_taken_back_is_told(counter: Counter) -> None:
    goes_by(counter, 30)
    write_offs.write_off(invoice=counter.invoice, why="insolvent", by="op", on=counter.now.date())
    goes_by(counter, 5)
    write_offs.take_back(invoice=counter.invoice, why="they are not", by="op", moment=counter.now)
    goes_by(counter, 5)
    assert subjects()[3:] == [AGAIN]


def test_a_part_that_comes_and_goes_back_is_told_by_nothing_new(counter: Counter) -> None:
    goes_by(counter, 30)
    pay(counter, "1.00")
    goes_back(counter, "-1.00")
    goes_by(counter, 10)
    assert len(subjects()) == 3


def test_a_reminder_that_waits_while_it_is_paid_and_goes_back_is_the_only_one(counter: Counter) -> None:
    counter.wait(days=4)
    dunning_run.run(moment=counter.now)
    pay(counter)
    goes_back(counter)
    dunning_run.run(moment=counter.now)
    send.post(moment=counter.now)
    dunning_run.run(moment=counter.now)
    send.post(moment=counter.now)
    assert subjects() == [AGAIN]


def test_past_due_is_said_again_where_that_is_the_step(counter: Counter) -> None:
    dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), reminders=[], past_due=5, write_off=0)
    goes_by(counter, 10)
    pay(counter)
    goes_back(counter)
    goes_by(counter, 5)
    assert subjects() == ["Invoice INV-2026-0001 is past due", "Invoice INV-2026-0001 is past due again"]
