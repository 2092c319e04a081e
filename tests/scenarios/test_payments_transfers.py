"""Ann pays by bank transfer; Op records what arrived."""

from __future__ import annotations

from datetime import date

import pytest

from billing.models import Invoice, Payment
from billing.receivables import settlement
from billing.receivables.settlement import PaymentError
from billing.rules.money import Money
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest
from tests.stories import closed, invoice_of

pytestmark = pytest.mark.django_db

IN_TIME, TOO_LATE = date(2026, 4, 17), date(2026, 4, 18)


@pytest.fixture
def invoice() -> Invoice:
    """Over 20.00 USD, due on 17 April 2026."""
    cluster = a_cluster(complete_through="2026-05-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(gpus=10))
    closed("2026-03", vision)
    return invoice_of(vision, "2026-03")


def paid(invoice: Invoice, amount: str, reference: str = "A1", *, currency: str = "USD") -> Payment:
    return settlement.record_payment(
        invoice=invoice,
        amount=Money.of(amount, currency),
        received_on=date(2026, 4, 9),
        reference=reference,
        recorded_by="op",
    )


def stands(invoice: Invoice, on: date = IN_TIME) -> tuple[str, str, str]:
    balance = settlement.load_balance(invoice=invoice, on=on)
    assert balance.paid + balance.due == Money.from_minor(invoice.total, invoice.currency)
    return balance.settlement.value, balance.paid.text, balance.due.text


def test_an_invoice_is_due_then_past_due_then_paid(invoice: Invoice) -> None:
    assert stands(invoice) == ("due", "0.00", "20.00")
    assert stands(invoice, TOO_LATE) == ("past_due", "0.00", "20.00")

    paid(invoice, "5.00")
    assert stands(invoice, TOO_LATE) == ("past_due", "5.00", "15.00")
    paid(invoice, "15.00", "A2")
    assert stands(invoice, TOO_LATE) == ("paid", "20.00", "0.00")


def test_case_080_what_is_paid_too_much_is_shown_as_owed_back(invoice: Invoice) -> None:
    paid(invoice, "25.00")
    assert stands(invoice) == ("paid", "25.00", "-5.00")


def test_the_same_transfer_recorded_twice_is_one(invoice: Invoice) -> None:
    assert paid(invoice, "5.00").pk == paid(invoice, "5.00").pk
    assert stands(invoice) == ("due", "5.00", "15.00")


def test_a_mistake_is_taken_back_by_a_negative_payment_but_never_more_than_was_paid(invoice: Invoice) -> None:
    paid(invoice, "5.00")
    paid(invoice, "-5.00", "A1 was not ours")
    assert stands(invoice) == ("due", "0.00", "20.00")
    with pytest.raises(PaymentError, match=r"Only 0\.00 was paid; no more can be taken back"):
        paid(invoice, "-0.01", "again")


@pytest.mark.parametrize(
    ("amount", "reference", "currency", "sentence"),
    [
        ("0.00", "A1", "USD", "A payment of nothing"),
        ("5.00", "A1", "EUR", "is in USD, not EUR"),
        ("5.00", "  ", "USD", "needs its reference"),
    ],
)
def test_what_cannot_be_a_payment_is_refused(
    invoice: Invoice, amount: str, reference: str, currency: str, sentence: str
) -> None:
    with pytest.raises(PaymentError, match=sentence):
        paid(invoice, amount, reference, currency=currency)
    assert not Payment.objects.exists()


def test_a_draft_cannot_be_paid(invoice: Invoice) -> None:
    draft = Invoice.objects.get()
    draft.pk, draft.number, draft.state = None, None, "draft"
    draft.period = invoice.tenant.periods.create(
        start=invoice.period_end, end=invoice.period_end.replace(month=5), timezone="UTC"
    )
    draft.save(force_insert=True)
    with pytest.raises(PaymentError, match="only an issued invoice can be paid"):
        paid(draft, "5.00")
    assert stands(draft)[0] == "draft"
