"""What Stripe tells of is stored and answered at once, however the broker does."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from billing.models import GatewayAccount, GatewayEvent
from billing.payments import checkout_sessions
from tests.collecting import Scenario, a_scenario

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        yield scenario


@pytest.fixture
def silent_broker(settings: Any) -> Iterator[None]:
    """A Redis that takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        settings.CELERY_BROKER_URL = f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
        yield


@pytest.mark.usefixtures("silent_broker")
def test_a_broker_that_says_nothing_does_not_keep_stripe_waiting(scenario: Scenario) -> None:
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "")
    message = scenario.stripe.webhooks.take()[-1]
    began = time.monotonic()
    response = Client().post(
        "/hooks/stripe/", message.body, content_type="application/json", headers=message.headers
    )
    assert response.status_code == 200
    assert time.monotonic() - began < 20  # Stripe waits so long; it takes 2, and this machine may be busy
    assert GatewayEvent.objects.filter(state="stored").count() == 1
    scenario.collect()
    assert (scenario.paid, scenario.charged) == ("4.00", [400])


def test_no_sender_of_tasks_waits_for_ever_for_a_broker(settings: Any) -> None:
    patience = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    assert 0 < patience["socket_connect_timeout"] <= 5
    assert 1 < patience["socket_timeout"] <= 30  # a worker waits one second for tasks


def test_a_key_of_the_other_mode_is_said_and_stripe_tells_again_later(scenario: Scenario) -> None:
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "")
    message = scenario.stripe.webhooks.take()[-1]
    GatewayAccount.objects.update(live=True)
    response = Client().post(
        "/hooks/stripe/", message.body, content_type="application/json", headers=message.headers
    )
    assert response.status_code == 503
    assert "This database has collected in live mode, and the key is a test one" in response.content.decode()
    assert not GatewayEvent.objects.exists()
