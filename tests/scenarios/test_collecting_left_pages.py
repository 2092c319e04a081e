"""Pages that somebody opened and left: they keep no charge waiting for long, and Stripe is not asked all day."""

from __future__ import annotations

import pytest
from django.test import Client

from billing.invoicing import credit_notes
from billing.models import BillingAccount, PayLink, PaymentRefund
from billing.payments import checkout_sessions, refunds
from billing.payments.gateways.base import GatewayError
from billing.rules.money import Money
from portal.core.tenants.models import Role, Tenant
from tests.builders import a_person
from tests.collecting import Counter
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.Back(done="https://bills.example/back/", stopped="https://bills.example/stopped/")


def a_page(counter: Counter) -> PayLink:
    return checkout_sessions.pay_page(
        invoice=counter.invoice, gateway=counter.gateway, back=BACK, who="ann", moment=counter.now
    )


@pytest.fixture
def ann(counter: Counter) -> Client:
    return signed_in(a_person("ann@vision.example", counter.lab, Role.OWNER))


def looks(counter: Counter) -> int:
    requests = [str(each) for each in counter.stripe.requests]
    return sum(each.startswith("GET /v1/checkout/sessions/") for each in requests)


def test_who_comes_back_by_cancel_closes_the_page_and_the_card_is_charged(
    counter: Counter, ann: Client
) -> None:
    counter.save_card()
    ann.post("/t/vision-lab/invoices/INV-2026-0001/pay/")
    (session,) = counter.stripe.objects("checkout.session")
    address = session["cancel_url"]
    assert "/t/vision-lab/payment/stopped/?page=" in address
    answer = ann.get(address.partition("testserver")[2])
    assert answer.headers["Location"] == "/t/vision-lab/invoices/INV-2026-0001/"
    assert PayLink.objects.get().state == "expired"
    counter.collect()
    assert (counter.taken, counter.paid) == ([400], "4.00")
    counter.books_agree()


def test_what_was_paid_on_a_page_counts_although_its_payer_came_back_by_cancel(
    counter: Counter, ann: Client
) -> None:
    page = a_page(counter)
    counter.stripe.hand.pay(page.external_id or "")
    ann.get(f"/t/vision-lab/payment/stopped/?page={page.pk}")
    assert (counter.taken, counter.paid) == ([400], "4.00")
    assert ann.get("/t/vision-lab/payment/stopped/?page=nothing").status_code == 404
    counter.books_agree()


def test_a_page_that_was_left_open_holds_a_charge_for_ten_minutes_at_most(counter: Counter) -> None:
    counter.save_card()
    page = a_page(counter)
    counter.wait(minutes=9)
    counter.collect()
    assert counter.taken == []
    counter.wait(minutes=2)
    counter.collect()
    page.refresh_from_db()
    assert (page.state, counter.taken, counter.paid) == ("expired", [400], "4.00")
    counter.books_agree()


def test_a_page_is_closed_after_half_an_hour_and_looked_at_a_few_times_until_then(counter: Counter) -> None:
    page = a_page(counter)
    for _ in range(29):
        counter.wait(minutes=1)
        counter.collect()
    page.refresh_from_db()
    assert page.state == "open"
    assert looks(counter) <= 3
    counter.wait(minutes=1)
    counter.collect()
    page.refresh_from_db()
    assert page.state == "expired"
    before = looks(counter)
    for _ in range(24):
        counter.wait(hours=1)
        counter.collect()
    assert looks(counter) <= before + 1  # when Stripe tells that it is closed


def test_who_wants_to_pay_shortly_before_a_page_closes_has_a_new_one(counter: Counter) -> None:
    first = a_page(counter)
    counter.wait(minutes=25)
    second = a_page(counter)
    first.refresh_from_db()
    assert (first.state, second.state) == ("expired", "open")


def test_a_refund_over_which_stripe_failed_is_looked_for_for_hours_before_it_counts_as_not_made(
    counter: Counter,
) -> None:
    counter.save_card()
    counter.collect()
    note = credit_notes.credit(
        invoice=counter.invoice, reason="Slow.", by="op", on=counter.now.date(), net=Money.of("1.00", "USD")
    )
    (row,) = refunds.prepare(credit_note=note, who="op", moment=counter.now)
    counter.stripe.faults.server_error("POST /v1/refunds", effect=False)
    with pytest.raises(GatewayError):
        refunds.follow(refund=row, gateway=counter.gateway, moment=counter.now)
    counter.wait(hours=2)
    counter.collect()
    assert PaymentRefund.objects.get().state == "unknown"
    counter.wait(hours=2)
    counter.collect()
    assert PaymentRefund.objects.get().state == "canceled"


def test_another_billing_address_reaches_stripe_once(counter: Counter) -> None:
    counter.save_card()
    for name, email in (
        ("Vision Institute", "bills@vision.example"),
        ("Vision Lab", "bills@vision.example"),
        ("Vision Institute", "bills@vision.example"),
    ):
        Tenant.objects.update(name=name, email=email)
        counter.wait(minutes=1)
        for _ in range(3):
            counter.collect()
        (customer,) = counter.stripe.objects("customer")
        assert (customer["name"], customer["email"]) == (name, email)
    Tenant.objects.update(email="")
    counter.collect()
    account = BillingAccount.objects.get()
    requests = [each for each in counter.stripe.requests if each.path == f"/v1/customers/{account.customer}"]
    assert len([each for each in requests if each.method == "POST"]) == 3
    assert counter.stripe.violations == []
