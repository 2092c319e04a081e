"""The official client as the tests of the stand-in for Stripe use it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import stripe

from portal.dev.stripe_sandbox import Sandbox

SECRET = "whsec_of_the_tests"
NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
_numbers = itertools.count(1)


def key() -> stripe.RequestOptions:
    """A key of its own for a request, as our rows give them."""
    return {"idempotency_key": f"ct:test:{next(_numbers)}"}


def client(sandbox: Sandbox, *, api_key: str | None = None) -> stripe.StripeClient:
    return stripe.StripeClient(
        api_key or sandbox.key, base_addresses={"api": sandbox.url}, max_network_retries=0
    )


@contextmanager
def a_sandbox(**options: object) -> Iterator[Sandbox]:
    """A stand-in at noon of 2 November 2026, of which nobody may have broken a rule at the end."""
    arguments = {"now": NOON, "secret": SECRET, **options}
    with Sandbox(**arguments) as started:  # type: ignore[arg-type]  # the options of the class
        yield started
        assert [str(one) for one in started.violations] == []


def ann(api: stripe.StripeClient) -> str:
    """A customer to charge."""
    return api.v1.customers.create({"email": "ann@example.org", "name": "Ann"}, key()).id


def charge(
    api: stripe.StripeClient, customer: str, method: str, amount: int = 67_000, currency: str = "eur"
) -> stripe.PaymentIntent:
    """As a due invoice is charged: off session, with the charge and its fees in the answer."""
    return api.v1.payment_intents.create(
        {
            "amount": amount,
            "currency": currency,
            "customer": customer,
            "payment_method": method,
            "confirm": True,
            "off_session": True,
            "description": "Invoice 2026-0001",
            "metadata": {"ct_kind": "invoice", "ct_attempt": "a1"},
            "expand": ["latest_charge.balance_transaction"],
        },
        key(),
    )
