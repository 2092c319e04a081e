"""Ann pays on a page of Stripe: what she paid there counts before anything else is charged."""

from __future__ import annotations

import pytest

from billing.invoicing import voids
from billing.invoicing.voids import VoidError
from billing.models import CheckoutSession, GatewayEvent, PaymentAttempt
from billing.payments import charge_attempts, chargeable_invoices, checkout_sessions, webhook_events
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import GatewayError
from billing.receivables import settlement
from billing.rules.money import Money
from tests.collecting import Scenario

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


def a_page(scenario: Scenario, *, who: str = "ann@vision.example") -> CheckoutSession:
    return checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who=who, moment=scenario.now
    )


def test_a_used_page_holds_its_invoice_until_what_was_paid_there_is_booked(scenario: Scenario) -> None:
    """The worker that takes the page over cannot read its charge; others want to charge meanwhile."""
    scenario.save_card()
    page = a_page(scenario)
    scenario.stripe.dashboard.pay(page.external_id or "")
    for event in scenario.gateway.events(since=0):
        webhook_events.store_event(event, moment=scenario.now)
    session_event = GatewayEvent.objects.get(object_kind="checkout.session")
    scenario.stripe.faults.cut_before("GET /v1/payment_intents*")
    with pytest.raises(GatewayError):
        webhook_events.apply_event(session_event, gateway=scenario.gateway, moment=scenario.now)

    assert str(scenario.charge()) == "A page to pay on is open."
    with pytest.raises(VoidError):
        voids.void_invoice(invoice=scenario.invoice, reason="Wrong address.", by="op", on=scenario.now.date())
    webhook_events.apply_event(
        GatewayEvent.objects.get(pk=session_event.pk), gateway=scenario.gateway, moment=scenario.now
    )
    scenario.collect()
    assert (scenario.charged, scenario.states, scenario.paid) == ([400], ["succeeded"], "4.00")
    scenario.books_agree()


def test_a_page_that_was_kept_as_used_without_its_charge_is_read_before_anything_is_charged(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    page = a_page(scenario)
    scenario.stripe.dashboard.pay(page.external_id or "")
    CheckoutSession.objects.filter(pk=page.pk).update(state="complete")
    PaymentAttempt.objects.update(page_used=True)  # and the worker died

    assert charge_attempts.is_under_way(scenario.invoice)
    assert chargeable_invoices.list_chargeable(moment=scenario.now, limit=9) == []
    assert str(scenario.charge()) == "A payment is under way."
    with pytest.raises(CollectionError, match="A payment of this invoice is under way"):
        a_page(scenario)
    with pytest.raises(VoidError, match="A payment of INV-2026-0001 is under way"):
        voids.void_invoice(invoice=scenario.invoice, reason="Wrong address.", by="op", on=scenario.now.date())
    scenario.collect()
    assert (scenario.charged, scenario.states, scenario.paid) == ([400], ["succeeded"], "4.00")
    scenario.books_agree()


def transferred(scenario: Scenario, amount: str) -> None:
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of(amount, "USD"),
        received_on=scenario.now.date(),
        reference="by transfer",
        recorded_by="op",
    )


def test_whoever_wants_to_pay_meanwhile_is_led_to_the_page_that_is_open(scenario: Scenario) -> None:
    """Ann types her card; her colleague's click neither closes her page nor asks Stripe for anything."""
    first = a_page(scenario)
    request_count = len(scenario.stripe.requests)
    for _ in range(5):
        assert a_page(scenario, who="bea@vision.example").url == first.url
    assert len(scenario.stripe.requests) == request_count
    scenario.wait(minutes=5)
    assert a_page(scenario, who="bea@vision.example").pk == first.pk
    assert len(scenario.stripe.requests) == request_count + 1  # is it still open?
    scenario.stripe.dashboard.pay(first.external_id or "")
    scenario.collect()
    assert (scenario.charged, scenario.paid, CheckoutSession.objects.count()) == (
        [400],
        "4.00",
        1,
    )
    scenario.books_agree()


def test_a_page_that_asks_for_too_much_or_is_about_to_close_is_not_given_again(scenario: Scenario) -> None:
    first = a_page(scenario)
    transferred(scenario, "1.00")
    second = a_page(scenario)
    first.refresh_from_db()
    assert (first.state, second.state) == ("expired", "open")
    assert scenario.stripe.objects("checkout.session")[0]["amount_total"] in {300, 400}
    scenario.wait(hours=23, minutes=55)
    third = a_page(scenario)
    second.refresh_from_db()
    assert (second.state, third.state) == ("expired", "open")
    scenario.stripe.dashboard.pay(third.external_id or "")
    scenario.collect()
    assert (scenario.charged, scenario.paid) == ([300], "4.00")
    scenario.books_agree()


def test_a_page_that_was_just_used_is_not_paid_again(scenario: Scenario) -> None:
    page = a_page(scenario)
    scenario.stripe.dashboard.pay(page.external_id or "")
    scenario.wait(minutes=2)
    with pytest.raises(CollectionError, match="Nothing is due"):
        a_page(scenario)
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    scenario.books_agree()


def test_a_tenant_opens_no_more_than_so_many_new_pages_an_hour(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout_sessions, "MOST_NEW", 2)
    for paid in ("0.01", "0.02"):
        a_page(scenario)
        transferred(scenario, paid)
    with pytest.raises(
        CollectionError, match="2 pages to pay or to save a card on were opened within an hour"
    ):
        a_page(scenario)
    scenario.wait(minutes=61)
    assert a_page(scenario).state == "open"


def test_an_invoice_whose_page_was_paid_for_nothing_known_is_not_void_and_says_why(
    scenario: Scenario,
) -> None:
    """The row of the page stands for another charge by now, as after a backup: what was paid there is of nobody."""
    page = a_page(scenario)
    scenario.stripe.dashboard.pay(page.external_id or "")
    PaymentAttempt.objects.update(external_id="pi_of_another_charge")
    with pytest.raises(
        CollectionError, match=r"A page to pay INV-2026-0001 is open and cannot be closed now: pi_"
    ):
        checkout_sessions.withdraw_pages(invoice=scenario.invoice, moment=scenario.now)
