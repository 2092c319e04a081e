"""What Stripe tells of, as it comes over the wire: taken from the stand-in, posted to the hook, applied by a worker."""

from __future__ import annotations

import json
import time
from typing import Any

from django.test import Client

from billing.payments import webhook_events
from portal.dev.stripe_sandbox.deliveries import signature
from tests.collecting import Scenario

SECRET = "whsec_of_the_tests"

Notification = tuple[bytes, dict[str, str]]


def notifications(scenario: Scenario) -> list[Notification]:
    """The notifications that Stripe has for us, as it sends them."""
    return [(message.body, message.headers) for message in scenario.stripe.webhooks.take()]


def newest_notification(scenario: Scenario, kind: str) -> Notification:
    """The newest notification of that type; the others are lost."""
    return next(
        notice for notice in reversed(notifications(scenario)) if json.loads(notice[0])["type"] == kind
    )


def altered(one: Notification, **changes: Any) -> Notification:
    """The same with other words, signed as Stripe signs."""
    body = json.dumps(json.loads(one[0]) | changes).encode()
    return signed(body, secret=SECRET)


def signed(body: bytes, *, secret: str, ago: int = 0) -> Notification:
    """Signed with that secret so many seconds ago."""
    return body, {"Stripe-Signature": signature(body, [secret], int(time.time()) - ago)}


def post_to_hook(body: bytes, headers: dict[str, str]) -> int:
    return Client().post("/hooks/stripe/", body, content_type="application/json", headers=headers).status_code


def applied(scenario: Scenario) -> None:
    for event in webhook_events.list_waiting(before=scenario.now.replace(year=2100)):
        webhook_events.apply_event(event, gateway=scenario.gateway, moment=scenario.now)
