"""The stand-in for Stripe repeats what a key was answered, and does nothing twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import stripe

from portal.dev.stripe_sandbox import Sandbox
from tests.contracts.stripe_client import NOON, a_sandbox, ann, client, key

ONE: stripe.RequestOptions = {"idempotency_key": "ct:d1:pi:7f1c"}


def pay(api: stripe.StripeClient, customer: str, method: str, amount: int = 1_000) -> stripe.PaymentIntent:
    return api.v1.payment_intents.create(
        {
            "amount": amount,
            "currency": "eur",
            "customer": customer,
            "payment_method": method,
            "confirm": True,
            "off_session": True,
        },
        ONE,
    )


def test_the_same_request_with_the_same_key_charges_once() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        first = pay(api, customer, method)
        again = pay(api, customer, method)
        assert again.id == first.id
        assert again.last_response is not None
        assert again.last_response.headers["Idempotent-Replayed"] == "true"
        assert len(sandbox.objects("charge")) == 1
        assert [one.replayed for one in sandbox.requests[-2:]] == [False, True]


def test_a_decline_is_repeated_even_when_the_card_would_be_taken_now() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer, "4000 0000 0000 9995")
        for _ in range(2):
            with pytest.raises(stripe.CardError, match="insufficient funds"):
                pay(api, customer, method)
            sandbox.dashboard.behave(method, "4242 4242 4242 4242")
        assert len(sandbox.objects("charge")) == 1


def test_a_500_that_was_stored_is_repeated_and_nothing_was_charged() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        sandbox.faults.server_error("POST /v1/payment_intents")
        for _ in range(2):
            with pytest.raises(stripe.APIError) as failed:
                pay(api, customer, method)
            assert failed.value.http_status == 500
        assert sandbox.objects("payment_intent") == []


def test_other_parameters_or_another_endpoint_under_the_same_key_are_refused() -> None:
    with Sandbox(now=NOON) as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        pay(api, customer, method)
        with pytest.raises(stripe.IdempotencyError, match="same parameters"):
            pay(api, customer, method, 2_000)
        with pytest.raises(stripe.IdempotencyError, match="same endpoint"):
            api.v1.customers.create({"name": "Ben"}, ONE)
        assert [one.rule for one in sandbox.violations] == ["idempotency_key_reused"] * 2
        assert len(sandbox.objects("charge")) == 1


def test_a_refused_parameter_does_not_use_the_key_up() -> None:
    with Sandbox(now=NOON) as sandbox:
        api = client(sandbox)
        wrong: Any = {"name": "Ann", "shoe_size": "39"}
        with pytest.raises(stripe.InvalidRequestError):
            api.v1.customers.create(wrong, ONE)
        assert api.v1.customers.create({"name": "Ann"}, ONE).name == "Ann"


def test_a_key_is_forgotten_after_24_hours() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        first = pay(api, customer, method)
        sandbox.clock.advance(seconds=86_399)
        assert pay(api, customer, method).id == first.id
        sandbox.clock.advance(seconds=1)
        assert pay(api, customer, method).id != first.id


def test_a_key_that_is_in_use_is_refused_until_the_first_request_is_answered() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        sandbox.faults.delay(0.6, "POST /v1/payment_intents")
        payments: list[stripe.PaymentIntent] = []
        slow = threading.Thread(target=lambda: payments.append(pay(api, customer, method)))
        slow.start()
        for _ in range(200):
            if any(one.path == "/v1/payment_intents" for one in sandbox.requests):
                break
            threading.Event().wait(0.01)
        with pytest.raises(stripe.APIError) as refused:
            pay(client(sandbox), customer, method)
        slow.join()
        assert refused.value.http_status == 409
        assert refused.value.error is not None
        assert refused.value.error.code == "idempotency_key_in_use"
        assert pay(api, customer, method).id == payments[0].id


def test_two_keys_are_two_payments() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        for _ in range(2):
            api.v1.payment_intents.create({"amount": 1_000, "currency": "eur"}, key())
        assert len(sandbox.objects("payment_intent")) == 2


def test_twenty_at_once_with_one_key_make_one() -> None:
    with a_sandbox() as sandbox:
        outcomes: list[str] = []

        def ask() -> None:
            try:
                outcomes.append(client(sandbox).v1.customers.create({"name": "Ann"}, ONE).id)
            except stripe.APIError as refused:
                outcomes.append(str(refused.http_status))

        threads = [threading.Thread(target=ask) for _ in range(20)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        customer_id = sandbox.objects("customer")[0]["id"]
        assert set(outcomes) <= {customer_id, "409"}
        assert customer_id in outcomes
        assert len(sandbox.objects("customer")) == 1
