"""Nobody uses up what all tenants share by asking for top-ups, or by coming back from a page again and again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.test import Client

from billing.models import CheckoutSession, PaymentAttempt, TopUp, Wallet, WalletScope
from billing.payments import checkout_sessions, top_ups
from billing.payments.checkout_sessions import ReturnUrls
from billing.payments.gateway_access import CollectionError
from billing.wallets import wallet_terms
from tests.builders import a_person, at
from tests.collecting import Scenario, a_scenario
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

BACK = ReturnUrls("https://tab.example/back/", "https://tab.example/")
DECLINED = "4000000000000341"


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario() as scenario:
        wallet_terms.set_scheme(
            tenant=scenario.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        yield scenario
        assert scenario.stripe.violations == []


def page(scenario: Scenario, key: uuid.UUID | None = None) -> CheckoutSession:
    wallet = Wallet.objects.select_related("tenant", "project").get()
    return top_ups.open_page(
        wallet=wallet, amount=5000, key=key or uuid.uuid4(), gateway=scenario.gateway, back=BACK, who="ann",
        moment=scenario.now,
    )  # fmt: skip


def charge(scenario: Scenario, key: uuid.UUID | None = None) -> PaymentAttempt:
    wallet = Wallet.objects.select_related("tenant", "project").get()
    return top_ups.charge_top_up(
        wallet=wallet, amount=5000, key=key or uuid.uuid4(), gateway=scenario.gateway, back=BACK,
        who="ann", moment=scenario.now,
    )  # fmt: skip


def test_a_tenant_opens_no_more_than_60_pages_an_hour_to_top_up_on_either(scenario: Scenario) -> None:
    first = uuid.uuid4()
    page(scenario, first)
    for _ in range(59):
        page(scenario)
    with pytest.raises(CollectionError) as refused:
        page(scenario)
    sentence = "60 pages to pay or to save a card on were opened within an hour: please try again later."
    assert str(refused.value) == sentence
    assert (len(scenario.stripe.objects("checkout.session")), TopUp.objects.count()) == (60, 60)
    assert page(scenario, first).state == "open"  # the same form again is the same page
    scenario.wait(minutes=61)
    assert page(scenario).state == "open"


def test_a_card_is_tried_with_no_more_than_60_top_ups_an_hour(scenario: Scenario) -> None:
    scenario.save_card(DECLINED)
    first = uuid.uuid4()
    charge(scenario, first)
    for _ in range(59):
        charge(scenario)
    with pytest.raises(CollectionError) as refused:
        charge(scenario)
    assert str(refused.value) == "60 top-ups were charged to cards within an hour: please try again later."
    assert (len(scenario.stripe.objects("payment_intent")), TopUp.objects.count()) == (60, 60)
    assert charge(scenario, first).state == "failed"
    scenario.wait(minutes=61)
    scenario.save_card()
    assert charge(scenario).state == "succeeded"
    assert Wallet.objects.get().balance == 5000


def test_who_reloads_the_way_back_many_times_asks_stripe_once_a_minute(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout_sessions, "MOST_RETURNS", 3)
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        wallet_terms.set_scheme(
            tenant=scenario.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        link = page(scenario)
        ann = signed_in(a_person(tenant=scenario.lab))
        before = len(scenario.stripe.requests)
        texts = [back(ann, link) for _ in range(5)]
        assert len(scenario.stripe.requests) - before == 3
        assert "is being confirmed" not in texts[2]
        assert "Thank you. Your payment is being confirmed, which usually takes under a minute." in texts[4]
        assert not PaymentAttempt.objects.get().page_used  # nothing is under way for ever by reloading
        assert scenario.stripe.violations == []


def back(ann: Client, link: CheckoutSession) -> str:
    answer = ann.get(f"/t/vision-lab/payment/back/?session={link.external_id}", follow=True)
    return answer.content.decode()
