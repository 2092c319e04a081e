"""Receipts: for each payment once, with its amount and what it was paid with; and news of what was given back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from django.core import mail

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.models import Notice, OperatorDelivery, PaymentAttempt, Wallet, WalletScope
from billing.notifications import distribution
from billing.notifications.hours import Hours
from billing.notifications.subscriptions import set_subscription
from billing.payments import automatic, refunds, refunds_due
from billing.receivables import dunning_policies, settlement, write_offs
from billing.rules import gateway_amounts
from billing.rules.money import Money
from billing.rules.references import creditor_reference
from billing.wallets import wallet_terms
from portal.core.tenants.models import Tenant
from tests import stories
from tests.builders import an_operator, at
from tests.collecting import Scenario, a_scenario, a_top_up, credited, more_labs
from tests.statements import APRIL, Line, a_lab, camt, imported, march, stands

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scenario(settings: Any) -> Iterator[Scenario]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    settings.PORTAL_URL = "https://billing.example.org"
    with a_scenario(now=at("2026-04-15 09:00")) as scenario:
        Tenant.objects.update(email="bills@vision.example")
        yield scenario


def pays(lab: Tenant, amount: str, scenario: Scenario, reference: str = "SEPA 1") -> None:
    settlement.record_payment(
        invoice=stories.invoice_of(lab, "2026-03"),
        amount=Money.of(amount, "USD"),
        received_on=scenario.now.date(),
        reference=reference,
        recorded_by="op",
    )


def posts(scenario: Scenario) -> list[str]:
    """Subject and text of what a round and a worker send."""
    before = len(mail.outbox)
    dunning_run.run_dunning(moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    return [f"{message.subject}: {' '.join(str(message.body).split())}" for message in mail.outbox[before:]]


def test_a_transfer_in_two_parts_has_two_receipts_and_the_first_says_what_is_left(scenario: Scenario) -> None:
    pays(scenario.lab, "1.00", scenario)
    (first,) = posts(scenario)
    assert first.startswith(
        "Receipt: $1.00 for invoice INV-2026-0001: Dear Vision Lab, We have received $1.00"
    )
    assert "by bank transfer SEPA 1 on 15 April 2026" in first
    assert "$3.00 of the invoice is still due." in first
    pays(scenario.lab, "3.00", scenario, "SEPA 2")
    (second,) = posts(scenario)
    assert "Receipt: $3.00" in second
    assert "still due" not in second
    assert posts(scenario) == []


def test_a_charge_of_the_saved_card_has_one_that_names_the_card(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    (message,) = posts(scenario)
    assert "We have received $4.00 by Visa ending in 4242 on 15 April 2026." in message
    scenario.books_agree()


def test_several_payments_at_once_are_one_receipt(scenario: Scenario) -> None:
    pays(scenario.lab, "1.00", scenario, "SEPA 1")
    pays(scenario.lab, "2.00", scenario, "SEPA 2")
    (message,) = posts(scenario)
    assert message.startswith("Receipt for 2 payments: $3.00")
    assert "Invoice INV-2026-0001, bank transfer SEPA 1, 15 April 2026: $1.00" in message


def test_quota_028_a_payment_in_the_moment_of_sending_is_told_to_operators_as_the_one_before(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_subscription(
        user=an_operator(), topics=["receipts"], tenants=[], digest=False, hours=Hours(), moment=scenario.now
    )
    pays(scenario.lab, "1.00", scenario, "SEPA 1")
    dunning_run.run_dunning(moment=scenario.now)
    distribution.distribute(moment=scenario.now)
    pays(scenario.lab, "2.00", scenario, "SEPA 2")  # while the first is sent: both are one e-mail
    dunning_run.run_dunning(moment=scenario.now)
    with monkeypatch.context() as patched:
        patched.setattr(distribution, "distribute", lambda **_: 0)
        delivery.send_notices(moment=scenario.now)
    assert OperatorDelivery.objects.count() == 2


def test_what_was_given_up_has_none_nor_what_was_recorded_by_mistake(scenario: Scenario) -> None:
    pays(scenario.lab, "1.00", scenario)
    pays(scenario.lab, "-1.00", scenario)
    write_offs.write_off_invoice(
        invoice=scenario.invoice, reason="insolvent", by="op", on=scenario.now.date()
    )
    assert posts(scenario) == []
    assert Notice.objects.get(kind="receipt").reason == "The payment was taken back."


def test_a_transfer_that_its_bank_took_back_meanwhile_has_none(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    lab = a_lab()
    Tenant.objects.update(email="bills@vision.example")
    came = Line(amount="20.00", text="INV-2026-0001", end_to_end="PAY-7")
    went = Line(amount="-20.00", on="2026-04-09", end_to_end="PAY-7", reversal=True)
    imported(camt(came, went))
    assert stands(march(lab)) == ("due", "0.00", "20.00")
    dunning_run.run_dunning(moment=APRIL)
    delivery.send_notices(moment=APRIL)
    assert mail.outbox == []
    assert Notice.objects.get(kind="receipt").reason == "The payment was taken back."


def test_a_transfer_that_fills_a_wallet_has_one_unless_it_went_back(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    lab = a_lab()
    Tenant.objects.update(email="bills@vision.example")
    wallet_terms.set_scheme(
        tenant=lab, unit="EUR", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    named = creditor_reference(f"WALLET{Wallet.objects.get().pk}")
    imported(
        camt(
            Line(amount="50.00", reference=named, name="B1"),
            Line(amount="7.00", reference=named, name="B2", end_to_end="E2"),
            Line(amount="-7.00", name="B3", end_to_end="E2", returned="MS03", on="2026-04-09"),
        )
    )
    for _ in range(2):
        dunning_run.run_dunning(moment=APRIL)
        delivery.send_notices(moment=APRIL)
    (message,) = mail.outbox
    assert message.subject.startswith("Receipt: €50.00 for your wallet")
    assert "We have received €50.00 by bank transfer B1 on 8 April 2026." in " ".join(
        str(message.body).split()
    )


def test_a_statement_that_is_imported_once_a_month_brings_a_receipt_for_each_of_its_days(
    settings: Any,
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    a_lab()
    Tenant.objects.update(email="bills@vision.example")
    later = at("2026-05-04 09:00")
    imported(camt(Line(amount="20.00", text="INV-2026-0001")), moment=later)
    dunning_run.run_dunning(moment=later)
    delivery.send_notices(moment=later)
    (message,) = mail.outbox
    assert message.subject == "Receipt: €20.00 for invoice INV-2026-0001"


def test_a_tenant_has_none_whose_policy_says_so(scenario: Scenario) -> None:
    labs = more_labs(scenario, ["acme", "bolt"])
    dunning_policies.set_policy(tenant=scenario.lab, since=date(2026, 1, 1), receipts=False)
    dunning_policies.set_policy(tenant=labs[0], since=date(2026, 1, 1), emails=False)
    Tenant.objects.update(email="bills@labs.example")
    for lab in [scenario.lab, *labs]:
        pays(lab, "4.00", scenario)
    (message,) = posts(scenario)
    assert "Dear Bolt" in message


def test_a_refund_to_the_card_is_told_of_once(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    posts(scenario)
    note = credited(scenario, "1.50")
    refunds.prepare_refunds(credit_note=note, who="op", moment=scenario.now)
    scenario.collect()
    messages = [post for post in posts(scenario) if post.startswith("Refund")]
    assert len(messages) == 1
    assert "We have refunded $1.50 to your Visa ending in 4242." in messages[0]
    assert f"Credit note: {note.number}" in messages[0]
    assert posts(scenario) == []


def test_a_refund_by_transfer_is_told_of(scenario: Scenario) -> None:
    pays(scenario.lab, "4.00", scenario)
    credited(scenario, "4.00")
    posts(scenario)
    refunds_due.record_transfer(
        invoice=scenario.invoice, reference="BACK-7", who="op", on=scenario.now.date()
    )
    (message,) = posts(scenario)
    assert message.startswith("Refund: $4.00")
    assert "by bank transfer BACK-7" in message


def test_a_top_up_has_a_receipt_and_an_automatic_one_that_fails_is_told_of_in_the_morning(
    scenario: Scenario,
) -> None:
    pays(scenario.lab, "4.00", scenario)
    posts(scenario)
    card = scenario.save_card()
    wallet_terms.set_scheme(
        tenant=scenario.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = Wallet.objects.get()
    a_top_up(card, wallet, 2_000, now=scenario.now)
    scenario.collect()
    (receipt,) = posts(scenario)
    assert receipt.startswith("Receipt: $20.00 for your wallet")
    scenario.stripe.dashboard.behave(card.external_id, "4000000000009995")
    automatic.set_rule(
        wallet=wallet, active=True, below=5_000, amount=5_000, most=20_000, by="ann", moment=scenario.now
    )
    scenario.wait(hours=17)  # two at night
    scenario.collect()
    assert PaymentAttempt.objects.filter(state="failed").count() == 1
    assert posts(scenario) == []
    scenario.wait(hours=7)
    (failed,) = posts(scenario)
    assert failed.startswith("Your wallet was not topped up")
    assert "We could not charge $50.00 to your Visa ending in 4242" in failed
    assert "Your card has insufficient funds." in failed
    assert "add another card" in failed
    scenario.wait(days=3)
    assert posts(scenario) == []


def test_the_email_of_an_invoice_announces_no_charge_that_is_more_than_a_card_can_be_charged(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.save_card()
    bodies = []
    for most, again in ((400, 1), (399, 2)):
        monkeypatch.setattr(gateway_amounts, "MOST", most)
        notice = Notice(
            tenant=scenario.lab,
            invoice=scenario.invoice,
            kind="invoice",
            key=f"document:{again}",
        )
        notice.created_at = notice.not_before = scenario.now
        notice.details = {"since": "2026-04-01T00:00:00+00:00"}  # its PDF was waited for
        notice.save()
        delivery.send_notices(moment=scenario.now)
        bodies.append(" ".join(str(mail.outbox[-1].body).split()))
    assert "On 15 April 2026 we charge $4.00 to your Visa ending in 4242." in bodies[0]
    assert "we charge" not in bodies[1]
    assert "Please pay $4.00 by 15 April 2026." in bodies[1]
