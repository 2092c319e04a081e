"""What Stripe told of and cannot be applied: it holds its own tenant, is tried again, and is lost to nobody."""

from __future__ import annotations

from uuid import uuid4

import pytest

from billing.models import GatewayEvent, PaymentAttempt, PaymentDispute, SavedMethod, Wallet, WalletScope
from billing.payments import (
    attempts,
    automatic,
    checkout_sessions,
    customers,
    gateway_access,
    manual_review,
    webhook_events,
)
from billing.payments.gateway_access import CollectingError
from billing.wallets import wallet_terms
from tests.builders import at
from tests.collecting import Counter

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.Back(done="https://bills.example/back/", stopped="https://bills.example/invoice/")


def rounds_of_an_hour(counter: Counter) -> None:
    for _ in range(62):
        counter.wait(minutes=1)
        counter.collect()


def parked() -> list[tuple[str, str]]:
    rows = GatewayEvent.objects.filter(state="parked").order_by("object_kind")
    return list(rows.values_list("object_kind", "tenant_slug"))


def a_dispute_that_cannot_be_read(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    counter.stripe.hand.dispute(PaymentAttempt.objects.get().external_id or "")


def test_an_hour_without_stripe_parks_nothing_and_what_it_told_of_is_applied_after_it(
    counter: Counter,
) -> None:
    a_dispute_that_cannot_be_read(counter)
    counter.stripe.faults.cut_before("GET /v1/disputes*", times=62)
    rounds_of_an_hour(counter)
    assert parked() == []
    assert counter.standing == "paid"
    counter.wait(minutes=1)
    counter.collect()
    assert (PaymentDispute.objects.count(), counter.standing) == (1, "disputed")


def test_what_stripe_cannot_say_for_an_hour_is_parked_and_tried_again_each_hour(counter: Counter) -> None:
    a_dispute_that_cannot_be_read(counter)
    broken = counter.stripe.faults.server_error("GET /v1/disputes*", times=10_000)
    rounds_of_an_hour(counter)
    assert parked() == [("dispute", "")]
    counter.stripe.faults.lift(broken)
    counter.wait(minutes=30)
    counter.collect()
    assert not PaymentDispute.objects.exists()
    counter.wait(minutes=31)
    counter.collect()
    assert (PaymentDispute.objects.count(), parked(), counter.standing) == (1, [], "disputed")


def test_a_page_that_was_paid_and_cannot_be_read_for_an_hour_is_not_charged_beside_it(
    counter: Counter,
) -> None:
    counter.save_card()
    page = checkout_sessions.pay_page(
        invoice=counter.invoice, gateway=counter.gateway, back=BACK, who="ann", moment=counter.now
    )
    counter.stripe.hand.pay(page.external_id or "")
    broken = counter.stripe.faults.server_error("GET /v1/payment_intents/*", times=10_000)
    rounds_of_an_hour(counter)
    assert counter.taken == [400]
    assert parked() == [("checkout.session", "vision-lab"), ("payment_intent", "vision-lab")]
    counter.stripe.faults.lift(broken)
    rounds_of_an_hour(counter)
    assert (counter.taken, counter.states, counter.paid, parked()) == ([400], ["succeeded"], "4.00", [])
    counter.books_agree()


def test_what_nobody_can_reach_for_a_day_stops_others_no_longer(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_events, "TRIES_UNANSWERED", 3)
    counter.save_card()
    page = checkout_sessions.card_page(
        tenant=counter.lab, gateway=counter.gateway, back=BACK, who="ann", moment=counter.now
    )
    counter.stripe.hand.pay(page.external_id or "")
    counter.stripe.faults.cut_before("GET /v1/checkout/sessions*", times=3)
    for _ in range(3):
        counter.collect()
        assert counter.taken == []
    assert parked() == [("checkout.session", "vision-lab")]
    assert not webhook_events.is_behind(moment=counter.now)


def charged_for_nothing_here(counter: Counter) -> None:
    """Stripe tells of 4.00 of the lab for an invoice that this database does not have."""
    params = {
        "amount": 400,
        "currency": "usd",
        "customer": customers.account_of(counter.lab).customer,
        "payment_method": SavedMethod.objects.get().external_id,
        "confirm": True,
        "off_session": True,
        "metadata": gateway_access.tags(
            tenant="vision-lab", kind="invoice", attempt=uuid4(), invoice=999, number="INV-2026-0999"
        ),
    }
    counter.gateway.charge(params, key="before the backup was restored")


def test_a_charge_that_was_about_to_be_sent_is_not_sent_beside_money_that_belongs_to_nothing_yet(
    counter: Counter,
) -> None:
    """The worker dies between the two; the next round reads what is parked before it goes on with the charge."""
    counter.save_card()
    customer = customers.account_of(counter.lab).customer or ""
    attempts.prepare(invoice=counter.invoice, customer=customer, moment=counter.now, on=counter.now.date())
    charged_for_nothing_here(counter)
    counter.collect()
    assert set(parked()) == {("payment_intent", "vision-lab")}
    assert (counter.states, counter.taken, counter.paid) == (["canceled"], [400], "0.00")
    for event in GatewayEvent.objects.filter(state="parked"):
        manual_review.dealt_with(event=event, who="op", why="Given back by hand.", moment=counter.now)
    counter.wait(minutes=1)
    counter.collect()
    assert (counter.states, counter.taken, counter.paid) == (["canceled", "succeeded"], [400, 400], "4.00")


def test_an_automatic_top_up_that_was_about_to_be_sent_is_not_sent_beside_it_either(counter: Counter) -> None:
    wallet_terms.set_scheme(
        tenant=counter.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    counter.save_card()
    counter.collect()  # the invoice is paid
    counter.wait(minutes=1)
    wallet = Wallet.objects.get()
    rule = automatic.set_rule(
        wallet=wallet, active=True, below=1000, amount=2000, most=9000, by="ann", moment=counter.now
    )
    customer = customers.account_of(counter.lab).customer or ""
    assert automatic.prepare(rule=rule, customer=customer, moment=counter.now) is not None
    charged_for_nothing_here(counter)
    counter.collect()
    assert parked() == [("payment_intent", "vision-lab")]
    assert (counter.states, counter.taken) == (["succeeded", "canceled"], [400, 400])


def test_op_has_what_is_parked_applied_again_without_waiting_for_its_hour(counter: Counter) -> None:
    a_dispute_that_cannot_be_read(counter)
    broken = counter.stripe.faults.server_error("GET /v1/disputes*", times=10_000)
    rounds_of_an_hour(counter)
    counter.stripe.faults.lift(broken)
    event = GatewayEvent.objects.get(state="parked")
    manual_review.apply_again(event=event)
    manual_review.apply_again(event=event)
    counter.collect()
    assert (PaymentDispute.objects.count(), parked()) == (1, [])
    with pytest.raises(CollectingError, match="is not parked"):
        manual_review.apply_again(event=event)
