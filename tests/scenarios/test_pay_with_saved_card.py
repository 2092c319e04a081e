"""Ann pays with her saved card by one click: an invoice, or all that are open; and confirms it with her bank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from django.test import Client

from billing.models import (
    CheckoutSession,
    CheckoutState,
    Invoice,
    PaymentAttempt,
    SavedMethod,
    Wallet,
    WalletScope,
)
from billing.payments import charge_attempts, checkout_sessions, on_demand
from billing.payments.checkout_sessions import ReturnUrls
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import GatewayError
from billing.receivables import dunning_policies, settlement
from billing.rules.money import Money
from billing.wallets import wallet_terms
from portal.core.tenants.models import Role
from tests import builders
from tests.builders import at
from tests.collecting import Scenario, a_scenario
from tests.scenarios.test_dunning_endures import copies
from tests.web.clock import stand_at

pytestmark = pytest.mark.django_db(transaction=True)

BACK = ReturnUrls("https://tab.example/back/", "https://tab.example/")
GOOD, NO_FUNDS, ASKS = "4242424242424242", "4000000000009995", "4000002760003184"
HERE = "/t/vision-lab/invoices/INV-2026-0001/"


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenario]:
    for module in ("portal.web.access_decorators", "portal.web.payment", "portal.web.saved_card"):
        stand_at(monkeypatch, "2026-04-15 10:00", of=module)
    with a_scenario(now=at("2026-04-15 10:00")) as scenario:
        yield scenario
        assert scenario.stripe.violations == []


@pytest.fixture
def ann(scenario: Scenario) -> Client:
    client = Client()
    client.force_login(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER))
    return client


def text(client: Client, address: str) -> str:
    return " ".join(client.get(address).content.decode().split())


def key_on(client: Client, address: str) -> str:
    match = re.search(r'name="key" value="([0-9a-f-]{36})"', client.get(address).content.decode())
    assert match
    return match[1]


def pay(scenario: Scenario, **other: object) -> PaymentAttempt:
    arguments = {"invoice": scenario.invoice, "key": uuid4(), "gateway": scenario.gateway, "back": BACK}
    return on_demand.pay_invoice(**(arguments | {"who": "ann", "moment": scenario.now} | other))  # type: ignore[arg-type]


def test_one_click_pays_and_the_same_form_again_pays_once(scenario: Scenario, ann: Client) -> None:
    scenario.save_card(GOOD)
    assert "Pay $4.00 with Visa ending in 4242" in text(ann, HERE)
    key = key_on(ann, HERE)
    for _ in range(2):
        ann.post(f"{HERE}pay-saved/", {"key": key})
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    assert "$4.00 paid with Visa ending in 4242. Thank you." in text(ann, HERE)
    assert PaymentAttempt.objects.get().requested_by == "ann@vision.example"
    scenario.books_agree()


def test_a_refusal_is_said_and_is_not_emailed(scenario: Scenario, ann: Client) -> None:
    scenario.save_card(NO_FUNDS)
    ann.post(f"{HERE}pay-saved/", {"key": key_on(ann, HERE)})
    assert "Visa ending in 9995 was refused: Your card has insufficient funds." in text(ann, HERE)
    scenario.collect()
    assert scenario.states == ["failed"]  # nor is it charged again behind her back


def test_a_bank_that_asks_is_gone_to_and_come_back_from(scenario: Scenario, ann: Client) -> None:
    scenario.save_card(ASKS)
    led = ann.post(f"{HERE}pay-saved/", {"key": key_on(ann, HERE)})
    assert led["Location"] == f"/t/vision-lab/payment/confirm/{PaymentAttempt.objects.get().pk}/"
    on = text(ann, led["Location"])
    assert "Go on to your bank" in on
    link = CheckoutSession.objects.get()
    assert link.url in on
    assert (scenario.states, scenario.settlement) == (["offered"], "due")
    assert "Confirm with your bank" in text(ann, HERE)
    scenario.collect()  # a round leaves whoever is there alone
    assert scenario.states == ["offered"]

    charge = link.external_id or ""
    scenario.stripe.dashboard.authenticate(charge)
    back = urlsplit(scenario.stripe.objects("payment_intent")[0]["id"])
    ann.get(f"/t/vision-lab/payment/back/?payment_intent={back.path}&redirect_status=succeeded")
    assert (scenario.states, scenario.paid) == (["succeeded"], "4.00")
    assert CheckoutSession.objects.get().state == CheckoutState.COMPLETE
    scenario.books_agree()


def test_a_bank_that_says_no_leaves_it_to_be_paid_otherwise(scenario: Scenario, ann: Client) -> None:
    scenario.save_card(ASKS)
    ann.post(f"{HERE}pay-saved/", {"key": key_on(ann, HERE)})
    charge = CheckoutSession.objects.get().external_id or ""
    scenario.stripe.dashboard.authenticate(charge, passes=False)
    ann.get(f"/t/vision-lab/payment/back/?payment_intent={charge}&redirect_status=failed")
    assert scenario.states == ["failed"]
    assert CheckoutSession.objects.get().state == CheckoutState.EXPIRED
    assert "Pay with another card" in text(ann, HERE)


def test_a_bank_page_that_was_left_is_closed_before_anything_else_is_charged(scenario: Scenario) -> None:
    scenario.save_card(ASKS)
    pay(scenario)
    first = PaymentAttempt.objects.get()
    with pytest.raises(CollectionError):  # its page is looked at, closed, and only then another one is opened
        attempts_of_another_card(scenario)
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    first.refresh_from_db()
    assert first.state == "canceled"
    assert scenario.stripe.objects("payment_intent")[0]["status"] == "canceled"
    scenario.stripe.dashboard.pay(page.external_id or "")
    checkout_sessions.follow_session(checkout=page, gateway=scenario.gateway, moment=scenario.now)
    assert scenario.charged == [400]


def attempts_of_another_card(scenario: Scenario) -> None:
    attempt = charge_attempts.charge_invoice(
        invoice=scenario.invoice, gateway=scenario.gateway, moment=scenario.now, on=scenario.now.date()
    )
    if isinstance(attempt, charge_attempts.NotChargeableError):
        raise attempt


def test_a_bank_page_that_was_left_for_half_an_hour_is_closed_by_a_round(
    scenario: Scenario,
) -> None:
    scenario.save_card(ASKS)
    pay(scenario)
    scenario.wait(minutes=31)
    scenario.collect()
    assert scenario.states[0] == "canceled"
    assert CheckoutSession.objects.get().state == CheckoutState.EXPIRED
    assert scenario.charged == []


@pytest.mark.parametrize(
    ("fault", "asks"), [("drop_answer", False), ("cut_before", False), ("drop_answer", True)]
)
def test_an_answer_that_is_lost_is_followed_under_the_same_key(
    scenario: Scenario, fault: str, asks: bool
) -> None:
    scenario.save_card(ASKS if asks else GOOD)
    getattr(scenario.stripe.faults, fault)("POST /v1/payment_intents")
    with pytest.raises(GatewayError):
        pay(scenario)
    assert scenario.states == ["unknown"]
    scenario.wait(minutes=1)
    scenario.collect()
    if asks:
        scenario.stripe.dashboard.authenticate(CheckoutSession.objects.get().external_id or "")
        scenario.collect()
    assert scenario.charged == [400]
    scenario.books_agree()


def test_all_open_invoices_are_paid_by_one_click_oldest_first(scenario: Scenario, ann: Client) -> None:
    copies(2)
    scenario.save_card(GOOD)
    assert "3 open invoices: $12.00" in text(ann, "/t/vision-lab/invoices/")
    key = key_on(ann, "/t/vision-lab/invoices/")
    for _ in range(2):
        ann.post("/t/vision-lab/invoices/pay/", {"key": key})
    assert scenario.charged == [400] * 3
    assert PaymentAttempt.objects.values("invoice").distinct().count() == 3
    assert "Visa ending in 4242" in text(ann, HERE)
    scenario.books_agree()


def test_the_first_refusal_ends_it(scenario: Scenario, ann: Client) -> None:
    copies(2)
    scenario.save_card(NO_FUNDS)
    ann.post("/t/vision-lab/invoices/pay/", {"key": key_on(ann, "/t/vision-lab/invoices/")})
    assert scenario.states == ["failed"]
    page_text = text(ann, "/t/vision-lab/invoices/")
    assert (
        "Visa ending in 9995 was refused: Your card has insufficient funds. Nothing more was tried."
        in page_text
    )


def test_a_bank_that_asks_at_the_second_of_three_is_gone_to(scenario: Scenario, ann: Client) -> None:
    copies(2)
    card = scenario.save_card(GOOD)
    pay(scenario)
    scenario.stripe.dashboard.behave(card.external_id, ASKS)
    led = ann.post("/t/vision-lab/invoices/pay/", {"key": key_on(ann, "/t/vision-lab/invoices/")})
    asks = PaymentAttempt.objects.get(state="offered")
    assert led["Location"] == f"/t/vision-lab/payment/confirm/{asks.pk}/"
    assert asks.invoice == Invoice.objects.exclude(number="INV-2026-0001").earliest("pk")
    assert scenario.states == ["succeeded", "offered"]


def test_a_card_that_is_typed_on_the_page_to_pay_on_is_kept_if_ann_ticks_so(scenario: Scenario) -> None:
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "", save=True)
    for _ in range(2):
        checkout_sessions.follow_session(checkout=page, gateway=scenario.gateway, moment=scenario.now)
    card = SavedMethod.objects.get()
    assert (card.preferred, card.last4, scenario.paid) == (True, "4242", "4.00")
    scenario.books_agree()


def test_a_card_that_is_typed_there_and_not_ticked_is_forgotten(scenario: Scenario) -> None:
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "")
    checkout_sessions.follow_session(checkout=page, gateway=scenario.gateway, moment=scenario.now)
    assert scenario.paid == "4.00"
    assert not SavedMethod.objects.exists()


def test_eve_pays_nothing_of_anns_nor_sees_her_banks_page(scenario: Scenario) -> None:
    scenario.save_card(ASKS)
    asks = pay(scenario)
    eve = Client()
    eve.force_login(builders.a_person("eve@speech.example"))
    for address in (f"{HERE}pay-saved/", "/t/vision-lab/invoices/pay/"):
        assert eve.post(address, {"key": str(uuid4())}).status_code == 404
    assert eve.get(f"/t/vision-lab/payment/confirm/{asks.pk}/").status_code == 404
    other = builders.a_tenant("speech-lab")
    builders.a_person("eve@speech.example", other, Role.OWNER)
    assert eve.get(f"/t/speech-lab/payment/confirm/{asks.pk}/").status_code == 404
    assert scenario.states == ["offered"]


def test_a_wallet_is_topped_up_with_a_card_whose_bank_asks(scenario: Scenario, ann: Client) -> None:
    wallet_terms.set_scheme(
        tenant=scenario.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    scenario.save_card(ASKS)
    wallet = Wallet.objects.get()
    here = f"/t/vision-lab/wallets/{wallet.pk}/"
    form = {"amount": "20.00", "key": str(uuid4()), "by": "card"}
    led = ann.post(f"{here}top-up/", form)
    asks = PaymentAttempt.objects.get()
    assert led["Location"] == f"/t/vision-lab/payment/confirm/{asks.pk}/"
    assert ann.post(f"{here}top-up/", form)["Location"] == led["Location"]  # sent again, it leads there again
    scenario.stripe.dashboard.authenticate(asks.external_id or "")
    back = ann.get(f"/t/vision-lab/payment/back/?payment_intent={asks.external_id}")
    assert back["Location"] == here
    wallet.refresh_from_db()
    assert (wallet.balance, scenario.charged) == (2_000, [2_000])


def test_what_ann_tried_in_vain_takes_none_of_the_tries_that_are_made_by_themselves() -> None:
    with a_scenario(now=at("2026-04-05 10:00")) as scenario:  # ten days before the invoice is due
        card = scenario.save_card(NO_FUNDS)
        for _ in range(4):
            pay(scenario)
            scenario.wait(minutes=1)
        assert scenario.states == ["failed"] * 4
        scenario.stripe.dashboard.behave(card.external_id, GOOD)
        scenario.wait(days=10)
        scenario.collect()
        assert (scenario.charged, scenario.paid) == ([400], "4.00")


def test_where_the_policy_has_no_further_tries_the_first_is_made_though_ann_tried_in_vain() -> None:
    with a_scenario(now=at("2026-04-05 10:00")) as scenario:
        dunning_policies.set_policy(tenant=scenario.lab, since=date(2026, 1, 1), retries=())
        scenario.save_card(NO_FUNDS)
        pay(scenario)
        for _ in range(3):
            scenario.wait(days=10)
            scenario.collect()
        assert scenario.states == ["failed"] * 2


def test_where_stripe_gives_no_answer_ann_hears_what_is_paid_and_what_is_not_known(
    scenario: Scenario, ann: Client
) -> None:
    copies(2)
    scenario.save_card(GOOD)
    scenario.stripe.faults.drop_answer("POST /v1/payment_intents", skip=1)
    ann.post("/t/vision-lab/invoices/pay/", {"key": key_on(ann, "/t/vision-lab/invoices/")})
    page_text = text(ann, "/t/vision-lab/invoices/")
    assert "1 invoice paid with Visa ending in 4242: $4.00." in page_text
    assert "Stripe" not in page_text
    assert "Thank you. Your payment is being confirmed" in page_text
    scenario.wait(minutes=1)
    scenario.collect()
    assert scenario.charged == [400] * 3  # the third was due, and each is paid once


def test_a_key_that_stripe_refuses_is_no_business_of_anns(scenario: Scenario, ann: Client) -> None:
    copies(1)
    scenario.save_card(GOOD)
    scenario.stripe.faults.unauthorized()
    ann.post("/t/vision-lab/invoices/pay/", {"key": key_on(ann, "/t/vision-lab/invoices/")})
    page_text = text(ann, "/t/vision-lab/invoices/")
    assert "STRIPE_SECRET_KEY" not in page_text
    scenario.stripe.faults.lift()


def test_where_nothing_could_be_sent_ann_is_not_thanked(scenario: Scenario, ann: Client) -> None:
    scenario.save_card(GOOD)
    checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.faults.bad_gateway("*", times=9)
    ann.post(f"{HERE}pay-saved/", {"key": key_on(ann, HERE)})
    page_text = text(ann, HERE)
    assert "The payment service cannot be reached now; nothing was charged." in page_text
    assert "Thank you" not in page_text
    scenario.stripe.faults.lift()


def test_what_is_due_anew_since_ann_opened_the_page_is_not_charged_unseen(
    scenario: Scenario, ann: Client
) -> None:
    def form(address: str) -> dict[str, str]:
        matches = re.findall(r'name="(key|seen)" value="([^"]+)"', ann.get(address).content.decode())
        return dict(matches)

    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("3.00", "USD"),
        received_on=scenario.now.date(),
        reference="SEPA 1",
        recorded_by="op",
    )
    copies(1)
    scenario.save_card(GOOD)
    alone, together = form(HERE), form("/t/vision-lab/invoices/")
    assert (alone["seen"], together["seen"]) == ("USD=100", "USD=500")
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("-3.00", "USD"),
        received_on=scenario.now.date(),
        reference="SEPA 1 went back",
        recorded_by="op",
    )
    for address, form_data in ((f"{HERE}pay-saved/", alone), ("/t/vision-lab/invoices/pay/", together)):
        ann.post(address, form_data)
        assert "More is due by now than the page said, and nothing was charged" in text(ann, HERE)
    assert scenario.charged == []
    ann.post("/t/vision-lab/invoices/pay/", form("/t/vision-lab/invoices/"))
    assert scenario.charged == [400] * 2
