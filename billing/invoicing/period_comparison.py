"""What a close would bill beside what the period before it was billed, tenant by tenant and line by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from billing.catalog import billing_periods
from billing.invoicing.invoice_drafts import DraftInvoice
from billing.models import BillingPeriod, Invoice, InvoiceLine
from billing.rules.changes import Moved, Subject, moved
from billing.rules.money import Money

CORRECTIONS: Subject = ("", "Corrections of earlier periods")
FIRST_CHARGES: Subject = ("", "Earlier periods, billed for the first time")


@dataclass(frozen=True, slots=True)
class Change:
    """What differs from the invoice of the period before. The total is with tax, the lines are before it."""

    since: str  # the period before, for people: `October 2026`
    number: str  # of its invoice
    total: Moved
    lines: Mapping[Subject, Moved]  # those that differ, the largest difference first


def compare_with_last(bills: Sequence[DraftInvoice]) -> dict[int, Change]:
    """By tenant; those without an invoice for the period before are left out. Three queries."""
    last = _load_last(bills)
    lines: dict[int, list[InvoiceLine]] = defaultdict(list)
    for line in InvoiceLine.objects.filter(invoice__in=last.values()).order_by("invoice", "position"):
        lines[line.invoice_id].append(line)
    changes = {}
    for bill in bills:
        before, owing = last.get(bill.charges.tenant.pk), bill.charges
        if before is None or (owing.due.currency and owing.due.currency != before.currency):
            continue
        now = bill.total if owing.due.currency else Money.zero(before.currency)
        changes[owing.tenant.pk] = Change(
            billing_periods.name(before.period),
            before.number or "",
            Moved(Money.from_minor(before.total, before.currency), now),
            moved(
                _by_subject(lines[before.pk], before.currency),
                _by_subject(bill.divided.lines, before.currency),
                currency=before.currency,
            ),
        )
    return changes


def _load_last(bills: Sequence[DraftInvoice]) -> dict[int, Invoice]:
    """By tenant the invoice of the period that ends where the bill's begins."""
    before = BillingPeriod.objects.filter(
        tenant__in=[bill.charges.tenant.pk for bill in bills],
        end__in={bill.charges.period.start for bill in bills},
    )
    starts = {bill.charges.tenant.pk: bill.charges.period.start for bill in bills}
    invoices = Invoice.objects.issued().of_periods().filter(period__in=before).select_related("period")
    return {
        invoice.tenant_id: invoice for invoice in invoices if invoice.period_end == starts[invoice.tenant_id]
    }


def _by_subject(lines: Iterable[InvoiceLine], currency: str) -> dict[Subject, Money]:
    amounts: dict[Subject, Money] = {}
    for line in lines:
        subject = (line.project, line.description)
        if line.correction:
            subject = FIRST_CHARGES if line.first_charge else CORRECTIONS
        amounts[subject] = amounts.get(subject, Money.zero(currency)) + Money.from_minor(
            line.amount, currency
        )
    return amounts
