"""What is posted to the hook: whoever signs it, it is stored, ignored or refused, and never told of again for days."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from billing.models import EventState, GatewayEvent
from billing.payments import checkout_sessions, manual_review, webhook_events
from billing.queries import review_items
from tests.collecting import Scenario
from tests.hostile.mangling import INPUTS, LONG, REPEATED, Mangler
from tests.stripe_notifications import SECRET, notifications, post_to_hook, signed

pytestmark = [pytest.mark.django_db, pytest.mark.larger]

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


@pytest.fixture
def event(scenario: Scenario, settings: Any) -> dict[str, Any]:
    """As Stripe tells of a payment of ours."""
    settings.STRIPE_WEBHOOK_SECRETS = [SECRET]
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "")
    payload: dict[str, Any] = json.loads(notifications(scenario)[-1][0])
    return payload


def test_whatever_is_signed_is_stored_once_or_refused(scenario: Scenario, event: dict[str, Any]) -> None:
    chance, answers = Mangler(24), set[int]()
    for _ in range(INPUTS):
        answers.add(post_to_hook(*signed(chance.spoil_json(event), secret=SECRET)))
    assert answers == {200, 400}
    unread = GatewayEvent.objects.filter(type="not understood")
    assert {row.state for row in unread} == {EventState.NEEDS_REVIEW}
    assert not [row.reason for row in unread if REPEATED in row.reason]


@pytest.mark.parametrize(
    "shape",
    [
        [], None, 7, "evt", {}, {"id": 7}, {"id": ""}, {"id": LONG}, {"id": "a\x00b"},
        {"data": None}, {"data": []}, {"data": {"object": []}}, {"data": {"object": None}},
        {"data": {"object": {"id": "pi_1", "object": "payment_intent", "metadata": ["a"]}}},
        {"data": {"object": {"id": "pi_1", "object": "payment_intent", "metadata": {"ct_tenant": 7}}}},
        {"data": {"object": {"id": {"a": 1}, "object": "payment_intent"}}},
        {"type": None}, {"type": LONG}, {"created": "now"}, {"created": 2**70}, {"livemode": None},
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_not_understood_is_stored_once_and_somebody_sees_it(
    scenario: Scenario, event: dict[str, Any], shape: Any
) -> None:
    body = json.dumps(event | shape if isinstance(shape, dict) else shape).encode()
    if shape == {}:
        body = b"{}"
    assert [post_to_hook(*signed(body, secret=SECRET)) for _ in range(2)] == [200, 200]
    row = GatewayEvent.objects.get(type="not understood")
    assert row.state == EventState.NEEDS_REVIEW
    assert [row.reason] == [
        look.sentence
        for look in review_items.list_review_items(moment=scenario.now)
        if "understood" in look.sentence
    ]
    for late in webhook_events.list_reviewable(moment=scenario.now.replace(year=2100)):
        assert late.pk != row.pk
    manual_review.settle_event(event=row, who="op", reason="asked Stripe", moment=scenario.now)
    assert not GatewayEvent.objects.filter(state=EventState.NEEDS_REVIEW).exists()


@pytest.mark.usefixtures("event")
def test_no_header_of_a_stranger_is_an_error_of_ours() -> None:
    chance = Mangler(25)
    headers = ["é", "t=1,v1=é", "t=é", "t=" + "9" * 5000 + ",v1=a", "t=1,v1=", ",", "=", "t=1;v1=a", LONG]
    headers += [chance.spoil(b"t=1700000000,v1=aaaa").decode("latin-1") for _ in range(INPUTS // 4)]
    for header in headers:
        if "\n" in header or "\r" in header:
            continue  # which no server lets through
        answer = Client().post(
            "/hooks/stripe/", b"{}", content_type="application/json", headers={"Stripe-Signature": header}
        )
        assert (header, answer.status_code) == (header, 400)
