"""What somebody adds by hand stands on the next invoice, once; and what becomes of a month of nothing."""

from __future__ import annotations

import io
import json
from datetime import date
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction

from billing.invoicing import manual_lines, voids
from billing.invoicing.manual_lines import ManualLineError
from billing.models import Invoice, InvoiceSeries, ManualLine
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.tenants.models import Tenant, ZeroInvoices
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.stories import closed, invoice_of, lines_of, prove, total

pytestmark = pytest.mark.django_db

TODAY = date(2026, 4, 2)


@pytest.fixture
def vision() -> Tenant:
    """Used 4.00 in March, which is not closed yet, at 20 % tax."""
    cluster = a_cluster(complete_through="2026-09-01")
    a_seller()
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")], tax_rate=20)
    ingest(cluster, a_job(ended="2026-03-02 12:00"))
    return lab


def add(tenant: Tenant, amount: str, description: str = "Setup", currency: str = "USD") -> ManualLine:
    net = Money.of(amount, currency)
    return manual_lines.add_manual_line(
        tenant=tenant, description=description, net=net, reason="Agreed.", by="op", on=TODAY
    )


def texts(invoice: Invoice) -> list[tuple[str, int, str]]:
    return [(line.description, line.amount, line.kind) for line in lines_of(invoice)]


def test_lines_by_hand_stand_taxed_on_the_next_invoice_and_on_no_other(vision: Tenant) -> None:
    add(vision, "10.00")
    add(vision, "-2.50", "Goodwill")

    closed("2026-03", vision)

    march = invoice_of(vision, "2026-03")
    assert texts(march) == [
        ("GPU time", 400, "usage"), ("Setup", 1000, "manual"), ("Goodwill", -250, "manual"),
    ]  # fmt: skip
    assert (march.subtotal, march.tax, total(march)) == (1150, 230, "13.80")
    assert closed("2026-04", vision).outcome == "nothing to bill"
    assert not ManualLine.objects.pending().exists()
    prove()


def test_a_line_by_hand_alone_is_an_invoice_and_comes_back_when_that_is_void(vision: Tenant) -> None:
    closed("2026-03", vision)
    add(vision, "5.00")
    assert closed("2026-04", vision).total.text == "6.00"  # type: ignore[union-attr]

    voids.void_invoice(invoice=invoice_of(vision, "2026-04"), reason="Wrong month.", by="op", on=TODAY)
    assert closed("2026-04", vision).number == "INV-2026-0003"

    again = invoice_of(vision, "2026-04")
    assert (texts(again), again.replaces) == (
        [("Setup", 500, "manual")], Invoice.objects.get(number="INV-2026-0002"),
    )  # fmt: skip
    prove()


def test_more_taken_off_than_a_month_costs_waits_for_the_next(vision: Tenant) -> None:
    add(vision, "-5.00", "Goodwill")

    carried = closed("2026-03", vision)

    assert carried.outcome == "carried forward"
    assert carried.reason == (
        "What is taken off by hand or corrected exceeds this period's charges by 1.20 USD; "
        "the next invoice takes the difference up."
    )
    ingest(a_cluster(), a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"))
    assert closed("2026-04", vision).total.text == "1.20"  # type: ignore[union-attr]  # 4.00 + 2.00 - 5.00
    prove()


def test_a_line_is_removed_before_it_is_billed_and_stays_after_that(vision: Tenant) -> None:
    manual_lines.remove_manual_line(line=add(vision, "3.00"))
    assert not ManualLine.objects.exists()
    line = add(vision, "4.00")
    closed("2026-03", vision)

    with pytest.raises(ManualLineError, match="Setup was billed: credit the invoice"):
        manual_lines.remove_manual_line(line=line)
    with pytest.raises(DatabaseError, match="This line was billed"), transaction.atomic():
        ManualLine.objects.all().delete()
    with pytest.raises(DatabaseError, match="not changed"), transaction.atomic():
        ManualLine.objects.update(amount=1)


@pytest.mark.parametrize(
    ("amount", "currency", "description", "sentence"),
    [
        ("0.00", "USD", "Setup", "and not nothing"),
        ("0.001", "USD", "Setup", "whole coins of USD"),
        ("1.00", "EUR", "Setup", "Vision Lab is billed in USD, not in EUR"),
        ("1.00", "USD", " ", "Say what the line is"),
    ],
)
def test_what_cannot_be_a_line_says_why(
    vision: Tenant, amount: str, currency: str, description: str, sentence: str
) -> None:
    with pytest.raises(ManualLineError, match=sentence):
        add(vision, amount, description, currency)
    assert not ManualLine.objects.exists()


def test_op_adds_and_removes_lines_at_the_shell(vision: Tenant) -> None:
    manual_line = run("add_line", "vision-lab", "--description", "Setup", "--why", "Agreed.", "12.50")
    assert (manual_line["amount"], manual_line["currency"], manual_line["tenant"]) == (
        "12.50",
        "USD",
        "vision-lab",
    )
    assert run("remove_line", str(manual_line["line"]), "--why", "Twice.")["removed"] is True
    run("add_line", "vision-lab", "--description", "Setup", "--why", "Agreed.", "1.00")
    closed("2026-03", vision)
    number = run("show_invoices", "--tenant", "vision-lab")["invoices"][0]
    assert [line["kind"] for line in number["lines"]] == ["usage", "manual"]
    credit_note = run("credit_invoice", "INV-2026-0001", "--reason", "Slow.", "--net", "1.00")
    assert (credit_note["credit_note"], credit_note["total"], credit_note["due"]) == (
        "CN-2026-0001",
        "-1.20",
        "4.80",
    )
    explained = run("explain_invoice", "CN-2026-0001")["lines"]
    assert [line["original"]["number"] for line in explained] == ["INV-2026-0001"] * len(explained)


def run(command: str, *words: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command(command, *words, "--json", stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_case_051_a_month_of_nothing_has_no_invoice_unless_the_seller_or_tenant_wants_one(
    vision: Tenant,
) -> None:
    closed("2026-03", vision)
    assert closed("2026-04", vision).outcome == "nothing to bill"
    Tenant.objects.update(zero_invoices=ZeroInvoices.ISSUE)

    outcome = closed("2026-05", vision)

    assert (outcome.outcome, outcome.number, outcome.total) == (
        "issued", "INV-2026-0002", Money.of("0.00", "USD"),
    )  # fmt: skip
    nothing = invoice_of(vision, "2026-05")
    assert lines_of(nothing) == []
    assert settlement.load_balance(invoice=nothing, on=TODAY).settlement == "paid"
    assert closed("2026-05", vision).outcome == "already issued"
    a_seller(zero_invoices=ZeroInvoices.ISSUE)
    Tenant.objects.update(zero_invoices=ZeroInvoices.SKIP)
    assert closed("2026-06", vision).outcome == "nothing to bill"
    assert InvoiceSeries.objects.get().last_number == 2
    prove()
