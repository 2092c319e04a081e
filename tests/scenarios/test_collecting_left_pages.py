"""Pages that somebody opened and left: they keep no charge waiting for long, and Stripe is not asked all day."""

from __future__ import annotations

import pytest
from django.test import Client

from billing.invoicing import credit_notes
from billing.models import BillingAccount, CheckoutSession, PaymentRefund
from billing.payments import checkout_sessions, refunds
from billing.payments.gateways.base import GatewayError
from billing.rules.money import Money
from portal.core.tenants.models import Role, Tenant
from tests.builders import a_person
from tests.collecting import Scenario
from tests.tiers import strides
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/stopped/"
)


def a_page(scenario: Scenario) -> CheckoutSession:
    return checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )


@pytest.fixture
def ann(scenario: Scenario) -> Client:
    return signed_in(a_person("ann@vision.example", scenario.lab, Role.OWNER))


def looks(scenario: Scenario) -> int:
    requests = [str(request) for request in scenario.stripe.requests]
    return sum(request.startswith("GET /v1/checkout/sessions/") for request in requests)


def test_who_comes_back_by_cancel_closes_the_page_and_the_card_is_charged(
    scenario: Scenario, ann: Client
) -> None:
    scenario.save_card()
    ann.post("/t/vision-lab/invoices/INV-2026-0001/pay/")
    (session,) = scenario.stripe.objects("checkout.session")
    address = session["cancel_url"]
    assert "/t/vision-lab/payment/stopped/?page=" in address
    answer = ann.get(address.partition("testserver")[2])
    assert answer.headers["Location"] == "/t/vision-lab/invoices/INV-2026-0001/"
    assert CheckoutSession.objects.get().state == "expired"
    scenario.collect()
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    scenario.books_agree()


def test_what_was_paid_on_a_page_counts_although_its_payer_came_back_by_cancel(
    scenario: Scenario, ann: Client
) -> None:
    page = a_page(scenario)
    scenario.stripe.dashboard.pay(page.external_id or "")
    ann.get(f"/t/vision-lab/payment/stopped/?page={page.pk}")
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    assert ann.get("/t/vision-lab/payment/stopped/?page=nothing").status_code == 404
    scenario.books_agree()


def test_a_page_that_was_left_open_holds_a_charge_for_ten_minutes_at_most(scenario: Scenario) -> None:
    scenario.save_card()
    page = a_page(scenario)
    scenario.wait(minutes=9)
    scenario.collect()
    assert scenario.charged == []
    scenario.wait(minutes=2)
    scenario.collect()
    page.refresh_from_db()
    assert (page.state, scenario.charged, scenario.paid) == ("expired", [400], "4.00")
    scenario.books_agree()


@pytest.mark.swept
def test_a_page_is_closed_after_half_an_hour_and_looked_at_a_few_times_until_then(scenario: Scenario) -> None:
    page = a_page(scenario)
    for stride in strides(29):
        scenario.wait(minutes=stride)
        scenario.collect()
    page.refresh_from_db()
    assert page.state == "open"
    assert looks(scenario) <= 3
    scenario.wait(minutes=1)
    scenario.collect()
    page.refresh_from_db()
    assert page.state == "expired"
    before = looks(scenario)
    for stride in strides(24):
        scenario.wait(hours=stride)
        scenario.collect()
    assert looks(scenario) <= before + 1  # when Stripe tells that it is closed


def test_who_wants_to_pay_shortly_before_a_page_closes_has_a_new_one(scenario: Scenario) -> None:
    first = a_page(scenario)
    scenario.wait(minutes=25)
    second = a_page(scenario)
    first.refresh_from_db()
    assert (first.state, second.state) == ("expired", "open")


def test_a_refund_over_which_stripe_failed_is_looked_for_for_hours_before_it_counts_as_not_made(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.collect()
    note = credit_notes.issue_credit_note(
        invoice=scenario.invoice, reason="Slow.", by="op", on=scenario.now.date(), net=Money.of("1.00", "USD")
    )
    (row,) = refunds.prepare_refunds(credit_note=note, who="op", moment=scenario.now)
    scenario.stripe.faults.server_error("POST /v1/refunds", effect=False)
    with pytest.raises(GatewayError):
        refunds.follow_refund(refund=row, gateway=scenario.gateway, moment=scenario.now)
    scenario.wait(hours=2)
    scenario.collect()
    assert PaymentRefund.objects.get().state == "unknown"
    scenario.wait(hours=2)
    scenario.collect()
    assert PaymentRefund.objects.get().state == "canceled"


def test_another_billing_address_reaches_stripe_once(scenario: Scenario) -> None:
    scenario.save_card()
    for name, email in (
        ("Vision Institute", "bills@vision.example"),
        ("Vision Lab", "bills@vision.example"),
        ("Vision Institute", "bills@vision.example"),
    ):
        Tenant.objects.update(name=name, email=email)
        scenario.wait(minutes=1)
        for _ in range(3):
            scenario.collect()
        (customer,) = scenario.stripe.objects("customer")
        assert (customer["name"], customer["email"]) == (name, email)
    Tenant.objects.update(email="")
    scenario.collect()
    account = BillingAccount.objects.get()
    requests = [
        request for request in scenario.stripe.requests if request.path == f"/v1/customers/{account.customer}"
    ]
    assert len([request for request in requests if request.method == "POST"]) == 3
    assert scenario.stripe.violations == []
