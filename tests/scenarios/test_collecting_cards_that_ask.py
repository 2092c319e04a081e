"""Banks that ask who pays: once, when the card is saved, or each month anew."""

from __future__ import annotations

import pytest

from billing.models import Invoice
from billing.payments import checkout_sessions
from billing.receivables import settlement
from clusters.models import Cluster
from tests import stories
from tests.builders import a_job, ingest
from tests.collecting import Scenario

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)
ASKS_ONCE, ALWAYS_ASKS = "4000002500003155", "4000002760003184"


def april(scenario: Scenario) -> Invoice:
    """The next invoice, 8.00 for four hours, on the day it is due."""
    job = a_job(account="vision", started="2026-04-02 10:00", ended="2026-04-02 14:00")
    ingest(Cluster.objects.get(), job, as_of="2026-05-01")
    stories.close("2026-04", scenario.lab, on="2026-05-01")
    scenario.wait(days=30)
    return stories.invoice_of(scenario.lab, "2026-04")


def paid(scenario: Scenario, invoice: Invoice) -> tuple[str, str]:
    stand = settlement.load_balance(invoice=invoice, on=scenario.now.date())
    return stand.settlement.value, stand.paid.text


def test_collecting_case_15_a_card_that_asked_when_it_was_saved_is_charged_each_month(
    scenario: Scenario,
) -> None:
    scenario.save_card(ASKS_ONCE, set_up=True)
    scenario.collect()
    assert (scenario.states, scenario.charged, scenario.paid) == (["succeeded"], [400], "4.00")
    invoice = april(scenario)
    scenario.collect()
    assert (scenario.states, scenario.charged) == (["succeeded", "succeeded"], [400, 800])
    assert paid(scenario, invoice) == ("paid", "8.00")
    scenario.books_agree()


def test_collecting_case_15_the_same_card_saved_without_asking_waits_for_its_owner(
    scenario: Scenario,
) -> None:
    scenario.save_card(ASKS_ONCE)
    scenario.collect()
    assert (scenario.states, scenario.charged) == (["needs_action"], [])
    scenario.books_agree()


def test_collecting_case_15_a_card_that_always_asks_is_answered_on_the_page_each_month(
    scenario: Scenario,
) -> None:
    scenario.save_card(ALWAYS_ASKS)
    scenario.collect()
    assert (scenario.states, scenario.charged, scenario.settlement) == (["needs_action"], [], "past_due")
    answered(scenario, scenario.invoice)
    assert (scenario.states, scenario.charged, scenario.paid) == (
        ["needs_action", "succeeded"],
        [400],
        "4.00",
    )
    invoice = april(scenario)
    scenario.collect()
    assert scenario.states == ["needs_action", "succeeded", "needs_action"]
    assert paid(scenario, invoice) == ("past_due", "0.00")
    answered(scenario, invoice)
    assert scenario.charged == [400, 800]
    assert paid(scenario, invoice) == ("paid", "8.00")
    scenario.books_agree()


def answered(scenario: Scenario, invoice: Invoice) -> None:
    """Ann pays on the page, and says to her bank that it is her. No round of the days after charges anything."""
    scenario.wait(minutes=1)
    page = checkout_sessions.open_payment_page(
        invoice=invoice, gateway=scenario.gateway, back=BACK, who="ann@vision.example", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "", ALWAYS_ASKS, passes=True)
    for _ in range(2):
        scenario.collect()
        scenario.wait(hours=1)
