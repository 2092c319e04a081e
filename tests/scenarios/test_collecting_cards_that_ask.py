"""Banks that ask who pays: once, when the card is saved, or each month anew."""

from __future__ import annotations

import pytest

from billing.models import Invoice
from billing.payments import checkout_sessions
from billing.receivables import settlement
from clusters.models import Cluster
from tests import stories
from tests.builders import a_job, take_in
from tests.collecting import Counter

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.Back(done="https://bills.example/back/", stopped="https://bills.example/invoice/")
ASKS_ONCE, ALWAYS_ASKS = "4000002500003155", "4000002760003184"


def april(counter: Counter) -> Invoice:
    """The next invoice, 8.00 for four hours, on the day it is due."""
    job = a_job(account="vision", started="2026-04-02 10:00", ended="2026-04-02 14:00")
    take_in(Cluster.objects.get(), job, as_of="2026-05-01")
    stories.close("2026-04", counter.lab, on="2026-05-01")
    counter.wait(days=30)
    return stories.invoice_of(counter.lab, "2026-04")


def paid(counter: Counter, invoice: Invoice) -> tuple[str, str]:
    stand = settlement.balance(invoice=invoice, on=counter.now.date())
    return stand.settlement.value, stand.paid.text


def test_collecting_case_15_a_card_that_asked_when_it_was_saved_is_charged_each_month(
    counter: Counter,
) -> None:
    counter.save_card(ASKS_ONCE, set_up=True)
    counter.collect()
    assert (counter.states, counter.taken, counter.paid) == (["succeeded"], [400], "4.00")
    invoice = april(counter)
    counter.collect()
    assert (counter.states, counter.taken) == (["succeeded", "succeeded"], [400, 800])
    assert paid(counter, invoice) == ("paid", "8.00")
    counter.books_agree()


def test_collecting_case_15_the_same_card_saved_without_asking_waits_for_its_owner(counter: Counter) -> None:
    counter.save_card(ASKS_ONCE)
    counter.collect()
    assert (counter.states, counter.taken) == (["needs_action"], [])
    counter.books_agree()


def test_collecting_case_15_a_card_that_always_asks_is_answered_on_the_page_each_month(
    counter: Counter,
) -> None:
    counter.save_card(ALWAYS_ASKS)
    counter.collect()
    assert (counter.states, counter.taken, counter.standing) == (["needs_action"], [], "past_due")
    answered(counter, counter.invoice)
    assert (counter.states, counter.taken, counter.paid) == (["needs_action", "succeeded"], [400], "4.00")
    invoice = april(counter)
    counter.collect()
    assert counter.states == ["needs_action", "succeeded", "needs_action"]
    assert paid(counter, invoice) == ("past_due", "0.00")
    answered(counter, invoice)
    assert counter.taken == [400, 800]
    assert paid(counter, invoice) == ("paid", "8.00")
    counter.books_agree()


def answered(counter: Counter, invoice: Invoice) -> None:
    """Ann pays on the page, and says to her bank that it is her. No round of the days after charges anything."""
    counter.wait(minutes=1)
    page = checkout_sessions.pay_page(
        invoice=invoice, gateway=counter.gateway, back=BACK, who="ann@vision.example", moment=counter.now
    )
    counter.stripe.hand.pay(page.external_id or "", ALWAYS_ASKS, passes=True)
    for _ in range(2):
        counter.collect()
        counter.wait(hours=1)
