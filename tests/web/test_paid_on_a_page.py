"""Ann pays on the page of Stripe and comes back: her invoice is paid, or says that a payment is processing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.test import Client

from billing.dunning import overdue_invoices
from billing.models import CheckoutSession, PaymentAttempt, WalletScope
from billing.payments import automatic, checkout_sessions
from billing.wallets import wallet_terms
from portal.core.tenants.models import Role
from tests import builders
from tests.collecting import Scenario, a_scenario
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)

INVOICE = "/t/vision-lab/invoices/INV-2026-0001/"


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        yield scenario
        assert scenario.stripe.violations == []


@pytest.fixture
def ann(scenario: Scenario) -> Client:
    return signed_in(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER))


def clicks_pay(ann: Client) -> None:
    assert ann.post(f"{INVOICE}pay/").status_code == 303


def pays(scenario: Scenario) -> None:
    (session,) = scenario.stripe.objects("checkout.session")
    scenario.stripe.dashboard.pay(session["id"])


def comes_back(ann: Client) -> str:
    (session,) = CheckoutSession.objects.values_list("external_id", flat=True)
    answer = ann.get(f"/t/vision-lab/payment/back/?session={session}", follow=True)
    return words(answer.content.decode())


def shown(ann: Client, path: str = INVOICE) -> str:
    return words(ann.get(path).content.decode())


def test_an_invoice_is_paid_when_ann_comes_back_though_its_page_was_looked_at_a_moment_ago(
    scenario: Scenario, ann: Client
) -> None:
    clicks_pay(ann)
    (link,) = CheckoutSession.objects.select_related("attempt", "tenant")
    checkout_sessions.follow_session(
        checkout=link, gateway=scenario.gateway, moment=datetime.now(UTC)
    )  # a round, or a second click
    comes_back(ann)  # too early, by the arrow of her browser
    pays(scenario)
    text = comes_back(ann)
    assert "INV-2026-0001 Paid" in text
    assert "Pay by card" not in text
    scenario.books_agree()


def test_while_stripe_does_not_answer_the_invoice_is_processing_everywhere_and_is_not_offered_again(
    scenario: Scenario, ann: Client
) -> None:
    clicks_pay(ann)
    pays(scenario)
    away = scenario.stripe.faults.bad_gateway("GET *", times=99)
    text = comes_back(ann)
    assert "Your payment is being confirmed, which usually takes under a minute." in text
    assert "INV-2026-0001 Processing" in text
    assert "Payment in progress $4.00" in text
    assert "A payment of $4.00 is being processed. You do not need to do anything." in text
    assert "Pay by card" not in text
    assert "Pay by bank transfer" not in text
    assert "INV-2026-0001 Mar 2026 3 Apr 2026" not in text
    assert "Processing" in shown(ann, "/t/vision-lab/invoices/")
    overview = shown(ann, "/t/vision-lab/")
    assert "Open invoices $4.00 1 being processed" in overview
    assert "Processing $4.00" in overview
    assert "Payment page Processing $4.00" in shown(ann, "/t/vision-lab/payment/")
    answer = ann.post(f"{INVOICE}pay/", follow=True)
    assert "Please try again in a few minutes" in words(answer.content.decode())
    assert [overdue.under_way for overdue in overdue_invoices.list_overdue(moment=scenario.now)] == [True]
    late = shown(signed_in(builders.an_operator()), "/operator/receivables/")
    assert "Processing No step while a payment is processing $4.00" in late

    scenario.stripe.faults.lift(away)
    scenario.collect()
    assert "INV-2026-0001 Paid" in shown(ann)
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    scenario.books_agree()


def test_who_comes_back_without_having_paid_can_pay(scenario: Scenario, ann: Client) -> None:
    clicks_pay(ann)
    text = comes_back(ann)
    assert "Processing" not in text
    assert "Pay by card" in text
    assert PaymentAttempt.objects.get().page_used is False


def test_a_debit_that_takes_its_bank_days_is_processing(ann: Client, scenario: Scenario) -> None:
    del ann  # the invoice of the fixture is in dollars, debits are in euros
    PaymentAttempt.objects.create(
        tenant=scenario.lab, invoice=scenario.invoice, amount=400, currency="USD", state="processing",
        external_id="pi_of_a_debit", created_at=scenario.now,
    )  # fmt: skip
    assert scenario.settlement == "processing"


def test_nothing_is_bought_by_itself_beside_a_page_of_top_up_that_was_used(
    scenario: Scenario, ann: Client
) -> None:
    wallet_terms.set_scheme(
        tenant=scenario.lab,
        unit="USD",
        scope=WalletScope.TENANT,
        overdraft=0,
        since=builders.at("2026-03-01"),
    )
    wallet = scenario.lab.wallets.get()
    scenario.save_card()
    path = f"/t/vision-lab/wallets/{wallet.pk}/"
    key = "6f6f8a4e-8a39-4c6e-9d75-2f8c8a3a9f10"
    ann.post(f"{path}top-up/", {"amount": "50.00", "by": "page", "key": key})
    pays(scenario)
    ann.post(f"{path}automatic/", {"below": "10.00", "amount": "20.00", "most": "100.00"})
    away = scenario.stripe.faults.bad_gateway("GET *", times=99)
    assert "Payment page Processing $50.00" in comes_back(ann)
    assert automatic.list_due_rules() == []
    scenario.collect()
    scenario.stripe.faults.lift(away)
    scenario.collect()
    assert sorted(scenario.charged) == [400, 5000]  # the invoice by the card, the top-up once
