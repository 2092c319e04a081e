"""Drafting and issuing invoices. Numbers are gapless; what is issued never changes."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

from django.db import connection, transaction

from billing import statements
from billing.models import (
    MOVES,
    BillingPeriod,
    Invoice,
    InvoiceLine,
    InvoiceState,
    Seller,
)
from billing.rules.statement import totals
from billing.statements import Statement
from billing.tasks import render_document
from portal.outbox import outbox
from portal.tenants.models import Tenant


class InvoicingError(Exception):
    """An invoice cannot be made or moved so; the message says why and what to do."""


def lock(tenant: Tenant) -> Tenant:
    """The tenant, locked until the transaction ends: nothing is rated or issued for it meanwhile."""
    return Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)


@transaction.atomic
def draft(*, tenant: Tenant, period: BillingPeriod, terms: dict[str, str] | None = None) -> Invoice | None:
    """The draft of the period, made or refreshed; None where nothing is owed.

    Asked again it is written anew from what is rated now. An invoice that is issued already is
    returned as it is.
    """
    return draft_locked(
        tenant=lock(tenant), period=period, standing=standing(tenant=tenant, period=period), terms=terms
    )


def standing(*, tenant: Tenant, period: BillingPeriod) -> Invoice | None:
    """The period's draft or issued invoice."""
    return Invoice.objects.filter(tenant=tenant, period=period).exclude(state=InvoiceState.VOID).first()


def draft_locked(
    *, tenant: Tenant, period: BillingPeriod, standing: Invoice | None, terms: dict[str, str] | None = None
) -> Invoice | None:
    """As `draft`, for a caller that holds the tenant's lock and knows what stands for the period."""
    if standing is not None and standing.state == InvoiceState.ISSUED:
        return standing
    due = statements.pending(tenant=tenant, period=period)
    if not due.lines:
        if standing is not None:
            discard(invoice=standing)
        return None
    invoice = standing or Invoice(tenant=tenant, period=period)
    seller = Seller.objects.order_by("pk").first() or Seller(name="The operator of this cluster")
    foot = totals(due.lines, tax_rate=tenant.tax_rate)
    invoice.currency = due.currency
    invoice.period_start, invoice.period_end, invoice.timezone = period.start, period.end, period.timezone
    invoice.seller, invoice.buyer = _seller(seller), _buyer(tenant)
    invoice.terms = terms or {}
    invoice.subtotal, invoice.tax, invoice.total = foot.subtotal.minor, foot.tax.minor, foot.total.minor
    invoice.tax_name, invoice.tax_rate = seller.tax_name, tenant.tax_rate
    invoice.rated_through = due.rated_through
    invoice.save()
    if standing is not None:
        invoice.lines.all().delete()
    InvoiceLine.objects.bulk_create(_lines(invoice, due))
    return invoice


@transaction.atomic
def issue(*, invoice: Invoice, on: date) -> Invoice:
    """Give the draft its number and freeze it; asked again, the same invoice.

    The PDF is rendered after the commit, by way of the outbox. Raises InvoicingError for a negative
    total, which only a credit note may state, and for a move that the table of moves does not hold.
    """
    tenant = lock(invoice.tenant)
    return issue_locked(tenant=tenant, invoice=Invoice.objects.get(pk=invoice.pk), on=on)


def issue_locked(*, tenant: Tenant, invoice: Invoice, on: date) -> Invoice:
    """As `issue`, for a caller that has read the invoice under the tenant's lock."""
    if invoice.state == InvoiceState.ISSUED:
        return invoice
    if InvoiceState.ISSUED not in MOVES[InvoiceState(invoice.state)]:
        raise InvoicingError(f"{invoice} is {invoice.state} and cannot be issued.")
    if invoice.total < 0:
        raise InvoicingError(
            "The corrections exceed the period's charges, and credit notes are not available yet; "
            "the next period's invoice takes the difference up."
        )
    invoice.number = _next_number(invoice.seller["invoice_prefix"], on)
    invoice.issued_on = on
    invoice.due_on = on + timedelta(days=tenant.payment_terms_days)
    invoice.state = InvoiceState.ISSUED
    invoice.save(update_fields=["number", "issued_on", "due_on", "state"])
    outbox.add(render_document, invoice_id=invoice.pk)
    return invoice


@transaction.atomic
def discard(*, invoice: Invoice) -> None:
    """Drop a draft; it never had a number, so the series has no gap. The database refuses an issued one."""
    invoice.lines.all().delete()
    invoice.delete()


def _next_number(prefix: str, on: date) -> str:
    """The next number of the prefix's series for that year: 'INV-2026-0001'. Holds the series' lock."""
    name = f"{prefix}-{on.year}"
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, [name])
        return f"{name}-{cursor.fetchone()[0]:04d}"


_COUNT = """
INSERT INTO billing_invoiceseries AS s (name, last_number) VALUES (%s, 1)
ON CONFLICT (name) DO UPDATE SET last_number = s.last_number + 1 RETURNING last_number
"""


def _lines(invoice: Invoice, due: Statement) -> list[InvoiceLine]:
    return [
        InvoiceLine(
            invoice=invoice,
            tenant=invoice.tenant,
            position=position,
            service_period=due.periods[line.key.service],
            project_id=due.projects[line.key.project],
            project=line.key.project,
            meter=line.key.meter.value,
            price_id=line.key.price_id,
            description=statements.describe(due.prices[line.key.price_id]),
            seconds_num=Decimal(line.resource_seconds.numerator),
            seconds_den=line.resource_seconds.denominator,
            unit=line.key.meter.unit,
            unit_price=line.unit_price,
            amount=line.amount.minor,
            correction=line.correction,
        )
        for position, line in enumerate(due.lines, start=1)
    ]


def _seller(seller: Seller) -> dict[str, str]:
    fields = (
        "name",
        "address",
        "vat_id",
        "registration",
        "email",
        "iban",
        "bic",
        "invoice_prefix",
        "tax_name",
    )
    return {field: getattr(seller, field) for field in fields}


def _buyer(tenant: Tenant) -> dict[str, str]:
    fields = ("slug", "name", "address", "vat_id", "email", "purchase_order")
    return {field: getattr(tenant, field) for field in fields}
