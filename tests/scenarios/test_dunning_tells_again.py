"""Ann's invoice was settled and is due anew, since what settled it went back: she is told again, and not twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.models import Notice, SavedMethod
from billing.receivables import dunning_policies, write_offs
from portal.core.tenants.models import Tenant
from tests.builders import at
from tests.collecting import Scenario, a_scenario, more_labs
from tests.scenarios.test_dunning_notices import NO_FUNDS, body, goes_by, pay, subjects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.swept]

FIRST = "Reminder: invoice INV-2026-0001 is overdue"
AGAIN = "Payment for invoice INV-2026-0001 was reversed"


@pytest.fixture
def scenario(settings: Any) -> Iterator[Scenario]:
    """March's invoice over 4.00 was due on 15 April; it is that day, and nobody is ever suspended."""
    settings.CLUSTERTAB_SENDS_MAIL = True
    with a_scenario(now=at("2026-04-15 09:00")) as scenario:
        Tenant.objects.update(email="bills@vision.example")
        yield scenario


def goes_back(scenario: Scenario, amount: str = "-4.00") -> None:
    pay(scenario, amount)


def test_a_transfer_that_goes_back_after_the_last_reminder_is_told_once(scenario: Scenario) -> None:
    goes_by(scenario, 30)
    assert len(subjects()) == 3
    pay(scenario)
    goes_by(scenario, 10)
    goes_back(scenario)
    goes_by(scenario, 40)
    assert subjects()[3:] == [AGAIN]
    assert "The payment for invoice INV-2026-0001, due on 15 April 2026, was reversed." in body()
    assert "Amount due again: $4.00." in body()


def test_each_time_it_is_told_anew(scenario: Scenario) -> None:
    goes_by(scenario, 30)
    for _ in range(2):
        goes_by(scenario)
        pay(scenario)
        goes_by(scenario)
        goes_back(scenario)
        goes_by(scenario, 5)
    assert subjects()[3:] == [AGAIN, AGAIN]


def test_the_steps_that_were_not_reached_yet_follow_on_their_days(scenario: Scenario) -> None:
    goes_by(scenario, 4)
    pay(scenario)
    goes_by(scenario)
    goes_back(scenario)
    goes_by(scenario)
    assert subjects() == [FIRST, AGAIN]
    goes_by(scenario, 40)
    second, third = (f"Reminder {step}: invoice INV-2026-0001 is overdue" for step in (2, 3))
    assert subjects() == [FIRST, AGAIN, second, third]
    assert Notice.objects.exclude(state="sent").count() == 0


def test_who_paid_in_time_and_was_never_reminded_is_told_too(scenario: Scenario) -> None:
    pay(scenario)
    goes_by(scenario, 30)
    assert subjects() == []
    goes_back(scenario)
    goes_by(scenario)
    assert subjects() == [AGAIN]


def test_a_write_off_that_is_taken_back_is_told(scenario: Scenario) -> None:
    goes_by(scenario, 30)
    write_offs.write_off_invoice(
        invoice=scenario.invoice, reason="insolvent", by="op", on=scenario.now.date()
    )
    goes_by(scenario, 5)
    write_offs.reverse_write_off(
        invoice=scenario.invoice, reason="they are not", by="op", moment=scenario.now
    )
    goes_by(scenario, 5)
    assert subjects()[3:] == [AGAIN]


def test_a_part_that_comes_and_goes_back_is_told_by_nothing_new(scenario: Scenario) -> None:
    goes_by(scenario, 30)
    pay(scenario, "1.00")
    goes_back(scenario, "-1.00")
    goes_by(scenario, 10)
    assert len(subjects()) == 3


def test_a_reminder_that_waits_while_it_is_paid_and_goes_back_is_the_only_one(scenario: Scenario) -> None:
    scenario.wait(days=4)
    dunning_run.run_dunning(moment=scenario.now)
    pay(scenario)
    goes_back(scenario)
    dunning_run.run_dunning(moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    dunning_run.run_dunning(moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    assert subjects() == [AGAIN]


def test_past_due_is_said_again_where_that_is_the_step(scenario: Scenario) -> None:
    dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), reminders=[], past_due=5, write_off=0)
    goes_by(scenario, 10)
    pay(scenario)
    goes_back(scenario)
    goes_by(scenario, 5)
    assert subjects() == ["Invoice INV-2026-0001 is past due", "Invoice INV-2026-0001 is past due again"]


def test_refusals_that_nobody_is_written_of_take_as_many_queries_as_one(
    scenario: Scenario,
) -> None:
    dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), emails=False)
    scenario.save_card(NO_FUNDS)
    scenario.collect()
    with CaptureQueriesContext(connection) as few:
        dunning_run.run_dunning(moment=scenario.now)
    for lab in more_labs(scenario, ["acme", "bolt", "coda"]):
        SavedMethod.objects.filter(tenant=lab).update(preferred=False)
        scenario.save_card_of(lab, NO_FUNDS)
    scenario.collect()
    assert scenario.states == ["failed"] * 4
    with CaptureQueriesContext(connection) as many:
        dunning_run.run_dunning(moment=scenario.now)
    assert len(many) == len(few)
