"""What took an invoice's total off, and what is due, add up to it: whatever paid it, and whatever became of it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from billing.invoicing import credit_notes, voids
from billing.models import Invoice, PaymentAttempt, Wallet, WalletScope
from billing.models.wallets import GrantKind
from billing.receivables import credit_balance, settlement, write_offs
from billing.rules.money import Money
from billing.wallets import grants, wallet_terms
from portal.core.tenants.models import Role, Tenant
from tests import builders
from tests.api.door import Door, door
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.collecting import Scenario
from tests.stories import closed, invoice_of

ON = date(2026, 11, 20)
SUMS = ("from_wallet", "paid", "credited", "written_off", "due")


def shown(key: Door) -> dict[str, tuple[str, ...]]:
    """By number how each document stands, and its sums, which add up to its total."""
    rows = {}
    for row in key.all("/invoices?expand=payments,credit_notes"):
        for document in (row, *row["credit_notes"]):
            sums = [document[name]["amount"] for name in SUMS]
            assert sum(map(Decimal, sums)) == Decimal(document["total"]["amount"]), document
            assert {document[name]["currency"] for name in (*SUMS, "total")} == {"USD"}
            rows[document["number"]] = (document["settlement"], *sums)
        assert row == key.reads(f"/invoices/{row['number']}?expand=payments,credit_notes")
    return rows


def pay(invoice: Invoice, amount: str, reference: str = "SEPA 1") -> None:
    settlement.record_payment(
        invoice=invoice,
        amount=Money.of(amount, "USD"),
        received_on=ON,
        reference=reference,
        recorded_by="op",
    )


def issued(lab: Tenant, month: str) -> Invoice:
    closed(month, lab)
    return invoice_of(lab, month)


def credit(invoice: Invoice, net: str | None = None) -> None:
    amount = Money.of(net, "USD") if net else None
    credit_notes.issue_credit_note(invoice=invoice, reason="Down", by="op", on=ON, net=amount)


def with_wallet(lab: Tenant, amount: int) -> None:
    """Which pays first from March on."""
    wallet_terms.set_scheme(
        tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    grants.grant(
        wallet=Wallet.objects.get(),
        amount=amount,
        kind=GrantKind.TOP_UP,
        key="a",
        who="op",
        moment=at("2026-03-01 10:00"),
    )


@pytest.mark.django_db
def test_the_sums_of_every_invoice_add_up_to_its_total() -> None:
    cluster = a_cluster(complete_through="2026-12-01")
    lab = a_tenant("vision-lab", plan=a_plan(settles="wallet-first"), accounts=[(cluster, "vision")])
    with_wallet(lab, 1300)
    months = ["2026-03", "2026-04", "2026-05", "2026-06", "2026-07", "2026-08", "2026-09", "2026-10"]
    ingest(cluster, *(a_job(started=f"{month}-02 10:00", ended=f"{month}-02 15:00") for month in months))
    by_wallet, split, _ = (issued(lab, month) for month in months[:3])  # 10.00 each
    pay(split, "4.00")
    credit_balance.receive_credit(  # 3.00 of it pay the second invoice, the rest the third
        tenant=lab, currency="USD", amount=1000, memo="Transfer", by="op", at=at("2026-11-20")
    )
    credit_balance.use_credit(tenant=lab, currency="USD", at=at("2026-11-20"), on=ON)
    credit(by_wallet, "2.00")
    given_up, taken_back, given_back, _, void = (issued(lab, month) for month in months[3:])
    pay(given_up, "3.00")
    write_offs.write_off_invoice(invoice=given_up, reason="insolvent", by="op", on=ON)
    pay(given_up, "1.00", "SEPA 2")
    credit(taken_back)
    pay(given_back, "10.00")
    credit(given_back, "4.00")
    pay(given_back, "-3.00", "Back")
    voids.void_invoice(invoice=void, reason="Wrong", by="op", on=ON)
    ann = door(builders.a_person("ann@vision.example", lab, Role.OWNER), lab)

    assert shown(ann) == {
        "INV-2026-0001": ("paid", "8.00", "0.00", "2.00", "0.00", "0.00"),
        "CN-2026-0001": ("credit_note", "0.00", "0.00", "-2.00", "0.00", "0.00"),
        "INV-2026-0002": ("paid", "3.00", "7.00", "0.00", "0.00", "0.00"),
        "INV-2026-0003": ("past_due", "0.00", "7.00", "0.00", "0.00", "3.00"),
        "INV-2026-0004": ("written_off", "2.00", "4.00", "0.00", "4.00", "0.00"),
        "INV-2026-0005": ("credited", "0.00", "0.00", "10.00", "0.00", "0.00"),
        "CN-2026-0002": ("credit_note", "0.00", "0.00", "-10.00", "0.00", "0.00"),
        "INV-2026-0006": ("paid", "0.00", "7.00", "4.00", "0.00", "-1.00"),
        "CN-2026-0003": ("credit_note", "0.00", "0.00", "-4.00", "0.00", "0.00"),
        "INV-2026-0007": ("past_due", "0.00", "0.00", "0.00", "0.00", "10.00"),
        "INV-2026-0008": ("void", "0.00", "0.00", "0.00", "0.00", "10.00"),
    }


@pytest.mark.django_db(transaction=True)
def test_a_disputed_payment_counts_until_it_is_lost(scenario: Scenario) -> None:
    ann = door(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER), scenario.lab)
    number = scenario.invoice.number
    scenario.save_card()
    scenario.collect()
    dispute = scenario.stripe.dashboard.dispute(PaymentAttempt.objects.get().external_id or "")
    scenario.collect()
    assert shown(ann) == {number: ("disputed", "0.00", "4.00", "0.00", "0.00", "0.00")}
    scenario.stripe.dashboard.lose_dispute(dispute)
    scenario.collect()
    assert shown(ann) == {number: ("charged_back", "0.00", "0.00", "0.00", "0.00", "4.00")}
    assert scenario.stripe.violations == []
