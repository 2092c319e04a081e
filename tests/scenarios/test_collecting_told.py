"""What is told late, after days, by somebody else, or of something else: it changes nothing that it should not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from billing.models import CheckoutSession, GatewayAccount, GatewayEvent, PaymentAttempt, SavedMethod
from billing.payments import checkout_sessions, customers, gateway_access
from portal.dev.stripe_sandbox.errors import ApiError
from tests.collecting import Scenario, a_scenario
from tests.stripe_notifications import (
    SECRET,
    altered,
    applied,
    newest_notification,
    notifications,
    post_to_hook,
    signed,
)

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)
DECLINED = "4000000000000341"


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        yield scenario


def a_page(scenario: Scenario) -> CheckoutSession:
    return checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann@vision.example", moment=scenario.now
    )  # fmt: skip


def stored_events() -> list[tuple[str, str, str]]:
    """Of each notification its type, what became of it, and why."""
    return list(GatewayEvent.objects.order_by("pk").values_list("type", "state", "reason"))


def test_collecting_case_18_a_refusal_that_is_told_after_the_success_takes_nothing_back(
    scenario: Scenario,
) -> None:
    """Ann's first card is refused on the page, her second is charged; Stripe's first message is the last to come."""
    page = a_page(scenario).external_id or ""
    with pytest.raises(ApiError, match="declined"):
        scenario.stripe.dashboard.pay(page, DECLINED)
    scenario.stripe.dashboard.pay(page)
    came = {json.loads(message[0])["type"]: message for message in notifications(scenario)}
    for kind in ("payment_intent.succeeded", "checkout.session.completed"):
        assert post_to_hook(*came[kind]) == 200
        applied(scenario)
    assert (scenario.paid, scenario.states, scenario.settlement) == ("4.00", ["succeeded"], "paid")
    assert post_to_hook(*came["payment_intent.payment_failed"]) == 200
    applied(scenario)
    scenario.collect()
    assert (scenario.paid, scenario.states, scenario.settlement) == ("4.00", ["succeeded"], "paid")
    assert PaymentAttempt.objects.get().message == ""
    scenario.books_agree()


def test_case_073_and_collecting_case_19_what_stripe_did_not_sign_is_refused_and_not_kept(
    scenario: Scenario,
) -> None:
    scenario.stripe.dashboard.expire_session(a_page(scenario).external_id or "")
    body, headers = newest_notification(scenario, "checkout.session.expired")
    forged = {**headers, "Stripe-Signature": headers["Stripe-Signature"][:-4] + "0000"}
    without = {name: value for name, value in headers.items() if name != "Stripe-Signature"}
    changed = body.replace(b"expired", b"settled")
    elsewhere = signed(body, secret="whsec_of_another_endpoint")
    for refused in ((body, forged), (body, without), (changed, headers), elsewhere):
        assert post_to_hook(*refused) == 400
    assert not GatewayEvent.objects.exists()
    assert post_to_hook(body, headers) == 200
    assert GatewayEvent.objects.count() == 1


def test_collecting_case_19_what_was_signed_more_than_five_minutes_ago_is_refused_and_not_kept(
    scenario: Scenario,
) -> None:
    scenario.stripe.dashboard.expire_session(a_page(scenario).external_id or "")
    body, _ = newest_notification(scenario, "checkout.session.expired")
    assert post_to_hook(*signed(body, secret=SECRET, ago=301)) == 400
    assert not GatewayEvent.objects.exists()
    assert post_to_hook(*signed(body, secret=SECRET, ago=200)) == 200


def test_collecting_case_21_after_two_days_without_an_endpoint_what_happened_is_read_from_stripes_list(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.collect()
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 150)
    notifications(scenario)  # nobody hears them
    assert (GatewayEvent.objects.filter(object_kind="refund").count(), scenario.paid) == (0, "4.00")
    scenario.wait(days=2)
    scenario.collect()
    assert {state for _, state, _ in stored_events()} <= {"applied", "ignored"}
    assert (GatewayEvent.objects.filter(object_kind="refund").count(), scenario.paid) == (1, "2.50")
    scenario.books_agree()


def test_collecting_case_21_after_forty_days_charges_and_refunds_themselves_are_read(
    scenario: Scenario,
) -> None:
    """Stripe keeps its events for thirty: what was refunded before, and charged by another process, is found."""
    scenario.save_card()
    scenario.collect()
    assert GatewayAccount.objects.get().events_through > 0
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 150)
    scenario.wait(days=40)
    scenario.collect()
    assert not GatewayEvent.objects.filter(object_kind="refund").exists()  # no event tells of it
    assert (scenario.paid, scenario.states) == ("2.50", ["succeeded"])
    scenario.books_agree()


def test_case_074_and_collecting_case_22_what_is_for_another_deployment_is_kept_and_left_alone(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    notifications(scenario)  # of our own card
    params = {
        "amount": 400,
        "currency": "usd",
        "customer": customers.get_billing_account(scenario.lab).customer,
        "payment_method": SavedMethod.objects.get().external_id,
        "confirm": True,
        "off_session": True,
        "metadata": gateway_access.object_tags(
            tenant="vision-lab", kind="invoice", invoice=scenario.invoice.pk, number="INV-2026-0001"
        )
        | {"ct_deployment": "00000000-0000-4000-8000-000000000000"},
    }
    scenario.gateway.charge(params, key="another deployment: 1")
    scenario.stripe.dashboard.save_card(scenario.stripe_customer("somebody else's"))
    came = notifications(scenario)
    assert [post_to_hook(*message) for message in came] == [200] * len(came)
    applied(scenario)
    assert ("payment_intent.succeeded", "ignored", "It belongs to nothing of ours.") in stored_events()
    assert {state for _, state, _ in stored_events()} == {"ignored"}
    assert (scenario.paid, scenario.states, PaymentAttempt.objects.count()) == ("0.00", [], 0)


def test_collecting_case_22_what_is_of_the_other_mode_is_kept_and_left_alone(scenario: Scenario) -> None:
    """A live endpoint that was given the test mode's secret: Ann has paid, but not there."""
    scenario.stripe.dashboard.pay(a_page(scenario).external_id or "")
    live = altered(newest_notification(scenario, "payment_intent.succeeded"), livemode=True)
    assert post_to_hook(*live) == 200
    applied(scenario)
    assert stored_events() == [
        ("payment_intent.succeeded", "ignored", "It is of the other mode, test or live."),
    ]
    assert (scenario.paid, scenario.states) == ("0.00", ["offered"])


def test_collecting_case_22_what_is_of_no_type_that_we_know_is_kept_and_left_alone(
    scenario: Scenario,
) -> None:
    scenario.stripe.dashboard.pay(a_page(scenario).external_id or "")
    ours = {
        "id": "in_1",
        "object": "invoice",
        "metadata": gateway_access.object_tags(tenant="vision-lab", kind="invoice"),
    }
    strange = altered(
        newest_notification(scenario, "payment_intent.succeeded"),
        type="invoice.overdue",
        data={"object": ours},
    )
    assert post_to_hook(*strange) == 200
    applied(scenario)
    assert stored_events() == [("invoice.overdue", "ignored", "Nothing is done about invoice.overdue.")]
    assert (scenario.paid, scenario.states) == ("0.00", ["offered"])
