"""What is sent to Stripe a second time under the same key is the same to the byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from billing.invoicing import credit_notes
from billing.models import CheckoutSession, PaymentAttempt, PaymentRefund
from billing.payments import charge_attempts, checkout_sessions, customers, refunds
from billing.payments.gateways.base import GatewayError
from billing.rules.money import Money
from tests.collecting import Scenario

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


def sent_twice(scenario: Scenario, path: str, send: Callable[[], object]) -> list[str]:
    """The bodies of the first call, whose answer is lost, and of the one that is sent later from the stored row."""
    scenario.stripe.faults.drop_answer(f"POST {path}")
    with pytest.raises(GatewayError):
        send()
    scenario.wait(minutes=5)
    for attempt in PaymentAttempt.objects.filter(state="unknown"):
        charge_attempts.follow_attempt(attempt=attempt, gateway=scenario.gateway, moment=scenario.now)
    for refund in PaymentRefund.objects.filter(state="unknown"):
        refunds.follow_refund(refund=refund, gateway=scenario.gateway, moment=scenario.now)
    for link in CheckoutSession.objects.filter(state="unknown"):
        checkout_sessions.follow_session(checkout=link, gateway=scenario.gateway, moment=scenario.now)
    requests = [
        request for request in scenario.stripe.requests if (request.method, request.path) == ("POST", path)
    ]
    assert len({request.key for request in requests}) == 1
    return [str(request.params) for request in requests]


def test_a_charge_whose_answer_was_lost_is_sent_again_as_the_same_bytes(scenario: Scenario) -> None:
    scenario.save_card()
    first, again = sent_twice(scenario, "/v1/payment_intents", scenario.charge)
    assert first == again
    assert PaymentAttempt.objects.get().state == "succeeded"
    scenario.books_agree()


def test_a_page_whose_opening_was_not_answered_is_asked_for_again_as_the_same_bytes(
    scenario: Scenario,
) -> None:
    def opens() -> CheckoutSession:
        return checkout_sessions.open_payment_page(
            invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
        )

    customers.get_customer(scenario.lab, gateway=scenario.gateway, moment=scenario.now)
    first, again = sent_twice(scenario, "/v1/checkout/sessions", opens)
    assert first == again
    assert CheckoutSession.objects.get().state == "open"


def test_a_refund_whose_answer_was_lost_is_sent_again_as_the_same_bytes(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    note = credit_notes.issue_credit_note(
        invoice=scenario.invoice, reason="Slow.", by="op", on=scenario.now.date(), net=Money.of("1.00", "USD")
    )
    (row,) = refunds.prepare_refunds(credit_note=note, who="op", moment=scenario.now)

    def gives_back() -> None:
        refunds.follow_refund(refund=row, gateway=scenario.gateway, moment=scenario.now)

    first, again = sent_twice(scenario, "/v1/refunds", gives_back)
    assert first == again
    assert PaymentRefund.objects.get().state == "succeeded"
    scenario.books_agree()


def test_a_customer_whose_making_was_not_answered_is_made_again_as_the_same_bytes(scenario: Scenario) -> None:
    scenario.stripe.faults.drop_answer("POST /v1/customers")
    with pytest.raises(GatewayError):
        customers.get_customer(scenario.lab, gateway=scenario.gateway, moment=scenario.now)
    customers.get_customer(scenario.lab, gateway=scenario.gateway, moment=scenario.now)
    first, again = (
        str(request.params) for request in scenario.stripe.requests if str(request) == "POST /v1/customers"
    )
    assert first == again
