"""What is sent to Stripe a second time under the same key is the same to the byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from billing.invoicing import credit_notes
from billing.models import PayLink, PaymentAttempt, PaymentRefund
from billing.payments import attempts, checkout_sessions, customers, refunds
from billing.payments.gateways.base import GatewayError
from billing.rules.money import Money
from tests.collecting import Counter

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.Back(done="https://bills.example/back/", stopped="https://bills.example/invoice/")


def sent_twice(counter: Counter, path: str, send: Callable[[], object]) -> list[str]:
    """The bodies of the first call, whose answer is lost, and of the one that is sent later from the stored row."""
    counter.stripe.faults.answer_lost(f"POST {path}")
    with pytest.raises(GatewayError):
        send()
    counter.wait(minutes=5)
    for attempt in PaymentAttempt.objects.filter(state="unknown"):
        attempts.follow(attempt=attempt, gateway=counter.gateway, moment=counter.now)
    for refund in PaymentRefund.objects.filter(state="unknown"):
        refunds.follow(refund=refund, gateway=counter.gateway, moment=counter.now)
    for link in PayLink.objects.filter(state="unknown"):
        checkout_sessions.follow(link=link, gateway=counter.gateway, moment=counter.now)
    requests = [
        request for request in counter.stripe.requests if (request.method, request.path) == ("POST", path)
    ]
    assert len({request.key for request in requests}) == 1
    return [str(request.params) for request in requests]


def test_a_charge_whose_answer_was_lost_is_sent_again_as_the_same_bytes(counter: Counter) -> None:
    counter.save_card()
    first, again = sent_twice(counter, "/v1/payment_intents", counter.charge)
    assert first == again
    assert PaymentAttempt.objects.get().state == "succeeded"
    counter.books_agree()


def test_a_page_whose_opening_was_not_answered_is_asked_for_again_as_the_same_bytes(counter: Counter) -> None:
    def opens() -> PayLink:
        return checkout_sessions.pay_page(
            invoice=counter.invoice, gateway=counter.gateway, back=BACK, who="ann", moment=counter.now
        )

    customers.customer_of(counter.lab, gateway=counter.gateway, moment=counter.now)
    first, again = sent_twice(counter, "/v1/checkout/sessions", opens)
    assert first == again
    assert PayLink.objects.get().state == "open"


def test_a_refund_whose_answer_was_lost_is_sent_again_as_the_same_bytes(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    note = credit_notes.credit(
        invoice=counter.invoice, reason="Slow.", by="op", on=counter.now.date(), net=Money.of("1.00", "USD")
    )
    (row,) = refunds.prepare(credit_note=note, who="op", moment=counter.now)

    def gives_back() -> None:
        refunds.follow(refund=row, gateway=counter.gateway, moment=counter.now)

    first, again = sent_twice(counter, "/v1/refunds", gives_back)
    assert first == again
    assert PaymentRefund.objects.get().state == "succeeded"
    counter.books_agree()


def test_a_customer_whose_making_was_not_answered_is_made_again_as_the_same_bytes(counter: Counter) -> None:
    counter.stripe.faults.answer_lost("POST /v1/customers")
    with pytest.raises(GatewayError):
        customers.customer_of(counter.lab, gateway=counter.gateway, moment=counter.now)
    customers.customer_of(counter.lab, gateway=counter.gateway, moment=counter.now)
    first, again = (
        str(request.params) for request in counter.stripe.requests if str(request) == "POST /v1/customers"
    )
    assert first == again
