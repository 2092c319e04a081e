"""Op records a transfer by hand that is more than the invoice has due: the rest is Ann's credit, not gone."""

from __future__ import annotations

from datetime import date

import pytest

from billing.invoicing import credit_notes
from billing.models import CreditEntry, Invoice, Payment
from billing.receivables import credit_balance, manual_payments, settlement
from billing.receivables.credit_balance import CreditBalanceError
from billing.receivables.manual_payments import RecordedTransfer
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import a_cluster, a_job, ingest
from tests.statements import APRIL, Line, a_lab, camt, imported
from tests.stories import close, invoice_of, prove

pytestmark = pytest.mark.django_db


begun, lab = sharing.fixtures(a_lab, "lab")  # owes 20.00 EUR for March


@pytest.fixture
def invoice(lab: Tenant) -> Invoice:
    """Over 20.00 EUR."""
    return invoice_of(lab, "2026-03")


def record(invoice: Invoice, amount: str, reference: str = "B1") -> RecordedTransfer:
    return manual_payments.record_transfer(
        invoice=invoice,
        amount=Money.of(amount, "EUR"),
        received_on=date(2026, 4, 8),
        reference=reference,
        recorded_by="op",
        at=APRIL,
    )


def stands(invoice: Invoice) -> tuple[str, str, int]:
    """Paid and due of the invoice, and the credit of its tenant; the sums close."""
    assert prove()
    stand = settlement.load_balance(invoice=invoice, on=APRIL.date())
    return stand.paid.text, stand.due.text, credit_balance.get_balance(invoice.tenant, "EUR")


def april(lab: Tenant) -> Invoice:
    """Another one, over 4.00 EUR."""
    ingest(a_cluster(), a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00", gpus=2))
    close("2026-04", lab)
    return invoice_of(lab, "2026-04")


def test_case_080_what_is_recorded_too_much_becomes_credit_that_pays_the_next_invoice(
    lab: Tenant, invoice: Invoice
) -> None:
    assert record(invoice, "12.00", "B1").to_credit.text == "0.00"
    assert record(invoice, "13.00", "B2").to_credit.text == "5.00"
    assert stands(invoice) == ("20.00", "0.00", 5_00)
    payments = Payment.objects.filter(invoice=invoice).order_by("pk").values_list("amount", "reference")
    assert list(payments) == [(12_00, "B1"), (13_00, "B2"), (-5_00, "Credit balance")]
    assert stands(april(lab)) == ("4.00", "0.00", 1_00)


def test_what_else_is_due_is_paid_by_it_at_once(lab: Tenant, invoice: Invoice) -> None:
    second = april(lab)
    record(invoice, "30.00")
    assert stands(invoice) == ("20.00", "0.00", 6_00)
    assert stands(second) == ("4.00", "0.00", 6_00)


def test_the_same_transfer_again_moves_nothing(invoice: Invoice) -> None:
    first, second = record(invoice, "25.00"), record(invoice, "25.00")
    assert (first.payment, second.to_credit.text) == (second.payment, "0.00")
    assert stands(invoice) == ("20.00", "0.00", 5_00)
    imported(camt(Line(amount="25.00", text="INV-2026-0001", name="B1")))  # waits: it is paid already
    assert stands(invoice) == ("20.00", "0.00", 5_00)


def test_one_for_an_invoice_that_is_paid_is_credit_as_a_whole(invoice: Invoice) -> None:
    record(invoice, "20.00")
    assert record(invoice, "7.00", "B2").to_credit.text == "7.00"
    assert stands(invoice) == ("20.00", "0.00", 7_00)


def test_a_mistake_is_taken_back_with_the_credit_that_it_gave(lab: Tenant, invoice: Invoice) -> None:
    second = april(lab)
    record(invoice, "25.00")
    assert (stands(invoice), stands(second)) == (("20.00", "0.00", 1_00), ("4.00", "0.00", 1_00))
    assert record(invoice, "-25.00", "B1 was not theirs").to_credit.text == "-5.00"
    assert (stands(invoice), stands(second)) == (("0.00", "20.00", 0), ("0.00", "4.00", 0))


def test_a_part_that_went_back_is_taken_from_the_credit_first(invoice: Invoice) -> None:
    record(invoice, "25.00")
    assert record(invoice, "-3.00", "sent back").to_credit.text == "-3.00"
    assert stands(invoice) == ("20.00", "0.00", 2_00)
    record(invoice, "-3.00", "sent back")
    assert stands(invoice) == ("20.00", "0.00", 2_00)


def test_what_a_credit_note_gives_back_is_paid_back_from_the_invoice_and_the_credit_stays(
    invoice: Invoice,
) -> None:
    record(invoice, "25.00")
    credit_notes.issue_credit_note(
        invoice=invoice, reason="The queue was down.", by="op", on=APRIL.date(), net=Money.of("7.00", "EUR")
    )
    assert stands(invoice) == ("20.00", "-7.00", 5_00)
    assert record(invoice, "-7.00", "refund").to_credit.text == "0.00"
    assert stands(invoice) == ("13.00", "0.00", 5_00)


def test_what_was_paid_back_from_the_balance_cannot_be_taken_back_too(lab: Tenant, invoice: Invoice) -> None:
    record(invoice, "25.00")
    credit_balance.record_payout(
        tenant=lab, currency="EUR", amount=Money.of("5.00", "EUR"), reference="OUT-1", by="op", at=APRIL
    )
    with pytest.raises(CreditBalanceError, match=r"^5\.00 EUR of what it gave to the credit balance"):
        record(invoice, "-25.00", "B1 was not theirs")
    assert stands(invoice) == ("20.00", "0.00", 0)


def test_more_than_came_can_never_be_taken_back(invoice: Invoice) -> None:
    record(invoice, "25.00")
    with pytest.raises(settlement.PaymentError, match=r"^Only 25\.00 was paid"):
        record(invoice, "-25.01", "too much")
    assert CreditEntry.objects.count() == 1
