"""Ann sees what was given back, of which invoice, and what is left to pay."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.urls import reverse

from billing.invoicing import credit_notes, voids
from billing.models import DocumentKind, Invoice
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from tests import stories
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

TODAY = date(2026, 4, 9)
MARCH = "INV-2026-0002"


@pytest.fixture
def house() -> House:
    """Ann's March came to 13.00 and 20 % tax: 15.60, on INV-2026-0002."""
    house = a_house(close=False)
    Tenant.objects.update(tax_rate=Decimal(20))
    stories.close("2026-03")
    return house


def credit(house: House, net: str | None = None) -> Invoice:
    return credit_notes.issue_credit_note(
        invoice=house.invoice,
        reason="The queue was down.",
        by="op",
        on=TODAY,
        net=Money.of(net, "USD") if net else None,
    )


def of(house: House, number: str | None) -> str:
    return page(house.ann, f"/t/vision-lab/invoices/{number}/")


def test_a_credit_note_says_what_it_gives_back_of_which_invoice(house: House) -> None:
    note = credit(house, "5.00")

    text = of(house, note.number)

    for shown in (
        "Credit note CN-2026-0001",
        "The queue was down.",
        "Credits invoice",
        f">{MARCH}</a>",
        "-$5.00",
        "VAT 20 %",
        "-$6.00",
    ):
        assert shown in text
    for hidden in ("Pay by bank transfer", "1 job", "data-expand", "Due</dt>"):
        assert hidden not in text


def test_the_invoice_says_what_was_credited_and_what_is_left_to_pay(house: House) -> None:
    credit(house, "5.00")

    text = of(house, MARCH)

    assert "<dt>Credited</dt><dd>$6.00</dd>" in text
    assert ">CN-2026-0001</a>" in text
    assert "$9.60" in text
    listed = page(house.ann, "/t/vision-lab/invoices/")
    assert listed.index("CN-2026-0001") < listed.index(MARCH)
    assert "To pay: <strong>$9.60</strong>" in listed


def test_what_was_paid_and_credited_is_to_be_paid_back(house: House) -> None:
    settlement.record_payment(
        invoice=house.invoice,
        amount=Money.of("15.60", "USD"),
        received_on=TODAY,
        reference="A1",
        recorded_by="op",
    )
    credit(house)
    text = of(house, MARCH)
    assert "<dt>To be paid back</dt><dd>$15.60</dd>" in text
    assert "To pay" not in page(house.ann, "/t/vision-lab/invoices/").split("<table")[0]


def test_an_invoice_that_is_void_says_why_and_what_replaces_it(house: House) -> None:
    voids.void_invoice(invoice=house.invoice, reason="Wrong address.", by="op", on=TODAY)
    stories.close("2026-03")

    old, new = of(house, MARCH), of(house, house.invoice.number)

    assert "This invoice is void: it is not to be paid. Wrong address." in old
    assert f">{house.invoice.number}</a>" in old
    assert "Replaces <br>" in new
    assert f">{MARCH}</a>" in new
    assert "Pay by bank transfer" not in old


def test_case_087_a_stranger_sees_no_credit_note(house: House) -> None:
    note = credit(house)
    for name in ("invoice", "invoice_pdf", "invoice_csv"):
        assert signed_in(house.eve).get(reverse(name, args=["vision-lab", note.number])).status_code == 404
    assert (
        signed_in(house.carla).get(reverse("invoice_pdf", args=["vision-lab", note.number])).status_code
        == 409  # it is not rendered yet
    )
    line = reverse("invoice_line_jobs", args=["vision-lab", note.number, 1])
    assert signed_in(house.ann).get(line).status_code == 404  # it has no jobs


def test_op_credits_and_voids_in_the_administration_with_a_reason(house: House) -> None:
    op = signed_in(house.op)
    address = reverse("admin:billing_invoice_changelist")
    chosen = {"_selected_action": [house.invoice.pk], "why": "The queue was down.", "confirmed": "yes"}

    refused = op.post(address, {**chosen, "why": "", "action": "credit_in_full"}, follow=True)
    assert "Say why it is credited" in refused.content.decode()
    done = op.post(address, {**chosen, "action": "credit_in_full"}, follow=True)
    assert f"{house.invoice} is credited by CN-2026-0001." in done.content.decode()
    assert Invoice.objects.get(kind=DocumentKind.CREDIT_NOTE).terms == {"credited_by": "op@cluster.example"}
    again = op.post(address, {**chosen, "action": "make_void"}, follow=True)
    assert "credit the rest of it instead" in again.content.decode()
    speech = Invoice.objects.get(tenant=house.speech)
    voided = op.post(address, {**chosen, "_selected_action": [speech.pk], "action": "make_void"}, follow=True)
    assert "is void. Close its period again" in voided.content.decode()
    shown = op.get(reverse("admin:billing_invoice_change", args=[speech.pk])).content.decode()
    assert "The queue was down. (op@cluster.example" in shown
