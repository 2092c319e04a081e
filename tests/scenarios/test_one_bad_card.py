"""A tenant of good will with one bad card: it is tried once, written to once, and told what happens next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core import mail

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.models import Invoice, Notice, PaymentAttempt
from portal.core.tenants.models import Role, Tenant
from tests import builders
from tests.builders import at
from tests.collecting import Scenario, a_scenario
from tests.scenarios.test_dunning_endures import copies
from tests.web.clock import stand_at
from tests.web.house import page

pytestmark = pytest.mark.django_db(transaction=True)

NO_FUNDS, STOLEN, GOOD = "4000000000009995", "4000000000009987", "4242424242424242"


@pytest.fixture
def scenario(settings: Any) -> Iterator[Scenario]:
    """Six invoices over 4.00 were due on 15 April; it is that day."""
    settings.CLUSTERTAB_SENDS_MAIL = True
    with a_scenario(now=at("2026-04-15 09:00")) as scenario:
        Tenant.objects.update(email="bills@vision.example")
        copies(5)
        yield scenario
        assert scenario.stripe.violations == []


def a_day(scenario: Scenario, **later: int) -> list[str]:
    """What is written after that time: rounds of collecting, of dunning and of posting, some of each."""
    scenario.wait(**later)
    before = len(mail.outbox)
    for _ in range(3):
        scenario.collect()
        dunning_run.run_dunning(moment=scenario.now)
        delivery.send_notices(moment=scenario.now)
    messages = mail.outbox[before:]
    return [f"{message.subject}: {' '.join(str(message.body).split())}" for message in messages]


@pytest.mark.peers  # takes long
def test_six_open_invoices_are_one_decline_and_one_email_and_the_others_wait_for_its_date(
    scenario: Scenario,
) -> None:
    scenario.save_card(NO_FUNDS)
    (message,) = a_day(scenario)
    assert scenario.states == ["failed"]
    assert message.startswith("Your payment of invoice INV-2026-0001 was declined")
    assert "We try again on 18 April 2026" in message
    for day in (16, 17):
        assert a_day(scenario, days=1) == []
        assert scenario.now.day == day
    assert scenario.states == ["failed"]
    assert len(a_day(scenario, days=1)) == 1
    assert scenario.states == ["failed"] * 2
    for _ in range(30):
        assert len(a_day(scenario, days=1)) <= 1
    tried = list(PaymentAttempt.objects.order_by("created_at").values_list("created_at", flat=True))
    assert all(later - earlier >= timedelta(days=3) for earlier, later in pairwise(tried))


def test_once_the_card_can_be_charged_all_six_are_paid_in_that_round(scenario: Scenario) -> None:
    card = scenario.save_card(NO_FUNDS)
    a_day(scenario)
    scenario.stripe.dashboard.behave(card.external_id, GOOD)
    assert a_day(scenario, days=1) == []
    a_day(scenario, days=2)
    assert scenario.charged == [400] * 6


def test_another_card_is_charged_at_once_and_nobody_asks_for_one_more(scenario: Scenario) -> None:
    scenario.save_card(GOOD)
    scenario.save_card(STOLEN)  # the newest is charged
    messages = a_day(scenario)
    assert scenario.states.count("failed") == 1
    assert scenario.charged == [400] * 6
    assert not [message for message in messages if "add another" in message]
    assert any(
        "We charge your Visa ending in 4242 instead. You need not do anything." in message
        for message in messages
    )


def test_while_the_other_card_has_not_been_charged_yet_the_email_says_that_it_will_be(
    scenario: Scenario,
) -> None:
    scenario.save_card(GOOD)
    scenario.save_card(STOLEN)
    scenario.charge()
    dunning_run.run_dunning(moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    (message,) = mail.outbox
    body = " ".join(str(message.body).split())
    assert "We charge your Visa ending in 4242 instead. You need not do anything." in body
    assert "add another" not in body


def test_a_refusal_at_night_and_the_mornings_reminders_are_one_email(scenario: Scenario) -> None:
    a_day(scenario, days=2, hours=16)  # one at night on 18 April, three days after they were due
    assert mail.outbox == []
    scenario.save_card(NO_FUNDS)
    assert a_day(scenario, minutes=5) == []
    (message,) = a_day(scenario, hours=7)
    assert message.startswith("Your payment of invoice INV-2026-0001 was declined")
    assert "5 invoices are overdue. Amount due: $20.00." in message
    assert "COPY-" in message
    assert set(Notice.objects.values_list("state", flat=True)) == {"sent", "skipped"}
    assert a_day(scenario, hours=8) == []


def test_six_reminders_of_one_day_are_one(scenario: Scenario) -> None:
    (message,) = a_day(scenario, days=3)
    assert message.startswith("Reminder: 6 invoices are overdue")
    assert "6 invoices are overdue. Amount due: $24.00." in message
    assert Notice.objects.filter(state="sent").count() == 6


def test_ann_sees_on_the_invoice_which_card_was_refused_why_and_when_it_is_charged_again(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_at(monkeypatch, "2026-04-15 10:00")
    ann = builders.a_person("ann@vision.example", scenario.lab, Role.OWNER)
    card = scenario.save_card(NO_FUNDS)
    scenario.collect()
    first = " ".join(page(ann, "/t/vision-lab/invoices/INV-2026-0001/").split())
    assert "Visa ending in 9995 was refused: Your card has insufficient funds." in first
    assert "It is charged again on 18 Apr 2026." in first
    other = Invoice.objects.exclude(number="INV-2026-0001").earliest("pk")
    second = " ".join(page(ann, f"/t/vision-lab/invoices/{other.number}/").split())
    assert "Visa ending in 9995 was refused for INV-2026-0001. It is charged from 18 Apr 2026 on." in second
    scenario.stripe.dashboard.behave(card.external_id, GOOD)
    a_day(scenario, days=3)
    paid = page(ann, "/t/vision-lab/invoices/INV-2026-0001/")
    assert "Visa ending in 9995" in paid
    assert "pi_" not in paid
