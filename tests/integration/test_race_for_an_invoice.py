"""Credit notes, voids, payments and closes that meet, or are killed, end as if one had come after the other."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal

import pytest

from billing.invoicing import credit_notes, voids
from billing.invoicing.credit_notes import CreditError
from billing.invoicing.voids import VoidError
from billing.models import DocumentKind, Invoice, InvoiceLine, InvoiceSeries, InvoiceState, Voiding
from billing.receivables import settlement
from billing.receivables.settlement import PaymentError
from billing.rules.money import Money
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest
from tests.integration.operators import Operator
from tests.integration.test_race_for_the_same_rows import at_once
from tests.stories import close, closed, hours, invoice_of, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

TODAY = date(2026, 4, 9)
KILLS = 5


def billed(count: int = 1, corrections: str = "") -> list[Tenant]:
    """Tenants who each owe 10 hours at 2.00 and 20 % tax for March."""
    cluster, plan = a_cluster(complete_through="2026-09-01"), a_plan()
    tenants = [
        a_tenant(
            f"t{n}", plan=plan, accounts=[(cluster, f"a{n}")], tax_rate=Decimal(20), corrections=corrections
        )
        for n in range(count)
    ]
    ingest(
        cluster,
        *[a_job(source_key=f"{n}@1", account=f"a{n}", ended="2026-03-02 20:00") for n in range(count)],
    )
    close("2026-03")
    return tenants


def credit(invoice: Invoice, net: str | None = None) -> str:
    """Its number, or why there is none."""
    try:
        note = credit_notes.issue_credit_note(
            invoice=invoice,
            reason="Slow.",
            by="op",
            on=TODAY,
            net=Money.of(net, "USD") if net else None,
        )
    except CreditError as refusal:
        return str(refusal)
    return note.number or ""


def test_case_055_fifty_credit_notes_at_once_are_numbered_1_to_50() -> None:
    invoices = [invoice_of(tenant, "2026-03") for tenant in billed(50)]

    numbers = at_once(*[lambda i=invoice: credit(i, "1.00") for invoice in invoices])

    assert sorted(numbers) == [f"CN-2026-{n:04d}" for n in range(1, 51)]
    assert InvoiceSeries.objects.get(name="CN-2026").last_number == 50
    prove()


def test_case_095_ten_who_credit_one_invoice_at_once_never_give_back_more_than_it_had() -> None:
    (tenant,) = billed()
    march = invoice_of(tenant, "2026-03")

    results = at_once(*[lambda: credit(march, "3.00")] * 10)

    assert sorted(result for result in results if result.startswith("CN")) == [
        f"CN-2026-{n:04d}" for n in range(1, 7)
    ]
    assert {result for result in results if not result.startswith("CN")} == {
        "INV-2026-0001: Only 2.00 USD are left to credit, before tax."
    }
    assert settlement.load_balance(invoice=march, on=TODAY).due.text == "2.40"
    prove()


def test_case_058_a_void_a_payment_and_a_credit_that_meet_leave_one_of_them() -> None:
    for tenant in billed(8):
        march = invoice_of(tenant, "2026-03")

        def void(march: Invoice = march) -> bool:
            try:
                voids.void_invoice(invoice=march, reason="Wrong.", by="op", on=TODAY)
            except VoidError:
                return False
            return True

        def pay(march: Invoice = march) -> bool:
            try:
                settlement.record_payment(
                    invoice=march,
                    amount=Money.of("24.00", "USD"),
                    received_on=TODAY,
                    reference="A1",
                    recorded_by="op",
                )
            except PaymentError:
                return False
            return True

        voided, paid, voided_too = at_once(void, pay, void)
        assert [voided, paid, voided_too].count(True) == 1
        march.refresh_from_db()
        assert march.state == (InvoiceState.ISSUED if paid else InvoiceState.VOID)
    prove()


def test_a_correction_during_a_close_is_billed_now_or_given_back_later() -> None:
    (tenant,) = billed(corrections=Corrections.CREDIT_NOTE)
    cluster = a_cluster()
    ingest(
        cluster,
        *[a_job(account="a0", started="2026-04-02 10:00", ended="2026-04-02 11:00") for _ in range(20)],
    )

    def corrects() -> None:
        for hour in (18, 15, 13, 12):
            ingest(cluster, a_job(source_key="0@1", account="a0", ended=f"2026-03-02 {hour}:00"))

    def closes() -> None:
        assert closed("2026-04", tenant).outcome == "issued"

    at_once(corrects, closes)

    prove()
    closed("2026-05", tenant)
    assert prove()["billed"] == hours(22)
    issued_lines = InvoiceLine.objects.filter(invoice__state=InvoiceState.ISSUED)
    assert sum(issued_lines.values_list("amount", flat=True)) == 4400


def test_two_who_close_with_corrections_at_once_issue_each_document_once() -> None:
    (tenant,) = billed(corrections=Corrections.CREDIT_NOTE)
    ingest(
        a_cluster(),
        a_job(source_key="0@1", account="a0", ended="2026-03-02 12:00"),
        a_job(account="a0", started="2026-04-02 10:00", ended="2026-04-02 11:00"),
    )

    at_once(*[lambda: closed("2026-04", tenant)] * 4)

    assert sorted(Invoice.objects.values_list("number", flat=True)) == [  # type: ignore[type-var]
        "CN-2026-0001", "INV-2026-0001", "INV-2026-0002",
    ]  # fmt: skip
    prove()


def test_case_089_killed_while_crediting_and_voiding_and_run_again_it_ends_the_same(
    database_url: str,
) -> None:
    tenants = billed(KILLS * 2)
    dice = random.Random(89)
    killed = 0
    with Operator(database_url) as op:
        for number, tenant in enumerate(tenants):
            march = invoice_of(tenant, "2026-03")
            voids = number % 2
            command = (
                "void_invoice" if voids else "credit_invoice",
                *(str(march.number), "--reason", "Wrong.", "--yes"),
            )  # fmt: skip

            def done(march: Invoice = march, voids: int = voids) -> int:
                if voids:
                    return Voiding.objects.filter(invoice=march).count()
                return Invoice.objects.filter(original=march).count()

            killed += op.is_killed_doing(*command, count=done, at=0, after=dice.uniform(0, 0.4))
            if not done():
                op.does(*command)

    assert killed >= 1
    notes = Invoice.objects.filter(kind=DocumentKind.CREDIT_NOTE).order_by("pk")
    assert [note.number for note in notes] == [f"CN-2026-{n:04d}" for n in range(1, KILLS + 1)]
    assert [note.total for note in notes] == [-2400] * KILLS
    assert Voiding.objects.count() == KILLS
    assert Invoice.objects.filter(state=InvoiceState.VOID).count() == KILLS
    assert OutboxMessage.objects.count() == 3 * KILLS  # a document for each invoice and credit note
    assert prove()["pending"] == hours(10 * KILLS)
    close("2026-03")
    again = [invoice_of(tenant, "2026-03") for tenant in tenants[1::2]]
    assert [outcome.number for outcome in again] == [
        f"INV-2026-{n:04d}" for n in range(KILLS * 2 + 1, KILLS * 3 + 1)
    ]
    assert {outcome.total for outcome in again} == {2400}
    prove()
