"""Drafting and issuing invoices. Numbers are gapless; what is issued never changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property

from django.db import connection, transaction

from billing import statements
from billing.describing import describe
from billing.models import (
    MOVES,
    BillingPeriod,
    Invoice,
    InvoiceLine,
    InvoiceState,
    Seller,
)
from billing.rules.statement import Totals, totals
from billing.statements import Statement
from billing.tasks import render_document
from portal.outbox import outbox
from portal.tenants.models import Tenant


class InvoicingError(Exception):
    """An invoice cannot be made or moved so; the message says why and what to do."""


@dataclass(frozen=True)
class Bill:
    """What is to become an invoice, if it has lines. `tenant` is locked."""

    tenant: Tenant
    period: BillingPeriod
    due: Statement
    standing: Invoice | None  # the period's draft, which is written anew
    terms: dict[str, str]

    @cached_property
    def foot(self) -> Totals:
        """What its lines come to. ValueError without any."""
        return totals(self.due.lines, tax_rate=self.tenant.tax_rate)


def lock(tenant: Tenant) -> Tenant:
    """The tenant, locked until the transaction ends: nothing is rated or issued for it meanwhile."""
    return lock_each([tenant])[tenant.pk]


def lock_each(tenants: Iterable[Tenant]) -> dict[int, Tenant]:
    """As `lock`, by id. In order of id, as every holder of several locks does; KeyError by whoever misses one."""
    wanted = [tenant.pk for tenant in tenants]
    found = Tenant.objects.select_for_update(no_key=True).filter(pk__in=wanted)
    return {tenant.pk: tenant for tenant in found.order_by("pk")}


@transaction.atomic
def draft(*, tenant: Tenant, period: BillingPeriod, terms: dict[str, str] | None = None) -> Invoice | None:
    """The draft of the period, made or refreshed; None where nothing is owed.

    Asked again it is written anew from what is rated now. An invoice that is issued already is
    returned as it is.
    """
    tenant = lock(tenant)
    standing = standing_each([period]).get(period.pk)
    if standing is not None and standing.state == InvoiceState.ISSUED:
        return standing
    due = statements.pending(tenant=tenant, period=period)
    if due.lines:
        return draft_each([Bill(tenant, period, due, standing, terms or {})])[0]
    if standing is not None:
        discard(invoice=standing)
    return None


def standing_each(periods: Sequence[BillingPeriod]) -> dict[int, Invoice]:
    """By period its draft or issued invoice, where there is one."""
    found = Invoice.objects.filter(period__in=periods).exclude(state=InvoiceState.VOID)
    return {invoice.period_id: invoice for invoice in found}


def draft_each(bills: Sequence[Bill]) -> list[Invoice]:
    """The drafts with their lines, in that order, for a caller that holds the tenants' locks."""
    if not bills:
        return []
    seller = Seller.objects.order_by("pk").first() or Seller(name="The operator of this cluster")
    invoices = [_drafted(bill, seller) for bill in bills]
    for invoice, bill in zip(invoices, bills, strict=True):
        if bill.standing is not None:
            invoice.save()
            invoice.lines.all().delete()
    Invoice.objects.bulk_create(
        [invoice for invoice, bill in zip(invoices, bills, strict=True) if bill.standing is None]
    )
    InvoiceLine.objects.bulk_create(
        [line for invoice, bill in zip(invoices, bills, strict=True) for line in _lines(invoice, bill.due)]
    )
    return invoices


@transaction.atomic
def issue(*, invoice: Invoice, on: date) -> Invoice:
    """Give the draft its number and freeze it; asked again, the same invoice.

    The PDF is rendered after the commit, by way of the outbox. Raises InvoicingError for a negative
    total, which only a credit note may state, and for a move that the table of moves does not hold.
    """
    tenant = lock(invoice.tenant)
    invoice = Invoice.objects.get(pk=invoice.pk)
    if invoice.state != InvoiceState.ISSUED:
        issue_each([(tenant, invoice, on)])
    return invoice


def issue_each(drafts: Sequence[tuple[Tenant, Invoice, date]]) -> None:
    """As `issue`, for a caller that has read the drafts under their tenants' locks; numbered in that order."""
    if not drafts:
        return
    for _, invoice, _ in drafts:
        if InvoiceState.ISSUED not in MOVES[InvoiceState(invoice.state)]:
            raise InvoicingError(f"{invoice} is {invoice.state} and cannot be issued.")
        if invoice.total < 0:
            raise InvoicingError(
                "The corrections exceed the period's charges, and credit notes are not available yet; "
                "the next period's invoice takes the difference up."
            )
    numbers = _next_numbers([(invoice.seller["invoice_prefix"], on) for _, invoice, on in drafts])
    for (tenant, invoice, on), number in zip(drafts, numbers, strict=True):
        invoice.number = number
        invoice.issued_on, invoice.due_on = on, on + timedelta(days=tenant.payment_terms_days)
        invoice.state = InvoiceState.ISSUED
    issued = [invoice for _, invoice, _ in drafts]
    with connection.cursor() as cursor:
        cursor.execute(
            _ISSUE,
            [
                InvoiceState.ISSUED.value,
                [invoice.pk for invoice in issued],
                [invoice.number for invoice in issued],
                [invoice.issued_on for invoice in issued],
                [invoice.due_on for invoice in issued],
            ],
        )
    outbox.add_each(render_document, [{"invoice_id": invoice.pk} for invoice in issued])


@transaction.atomic
def discard(*, invoice: Invoice) -> None:
    """Drop a draft; it never had a number, so the series has no gap. The database refuses an issued one."""
    invoice.lines.all().delete()
    invoice.delete()


def _drafted(bill: Bill, seller: Seller) -> Invoice:
    """The bill's invoice with everything but its lines, not saved yet."""
    invoice, foot = bill.standing or Invoice(tenant=bill.tenant, period=bill.period), bill.foot
    invoice.currency = bill.due.currency
    invoice.period_start, invoice.period_end = bill.period.start, bill.period.end
    invoice.timezone = bill.period.timezone
    invoice.seller, invoice.buyer, invoice.terms = _seller(seller), _buyer(bill.tenant), bill.terms
    invoice.subtotal, invoice.tax, invoice.total = foot.subtotal.minor, foot.tax.minor, foot.total.minor
    invoice.tax_name, invoice.tax_rate = seller.tax_name, bill.tenant.tax_rate
    invoice.rated_through = bill.due.rated_through
    return invoice


def _next_numbers(wanted: Sequence[tuple[str, date]]) -> list[str]:
    """The next number of each prefix's series for that year: 'INV-2026-0001'. Holds the series' locks."""
    names = [f"{prefix}-{on.year}" for prefix, on in wanted]
    left: dict[str, Iterator[int]] = {}
    with connection.cursor() as cursor:
        for name, count in sorted(Counter(names).items()):
            cursor.execute(_COUNT, {"name": name, "count": count})
            (last,) = cursor.fetchone()
            left[name] = iter(range(last - count + 1, last + 1))
    return [f"{name}-{next(left[name]):04d}" for name in names]


_COUNT = """
INSERT INTO billing_invoiceseries AS s (name, last_number) VALUES (%(name)s, %(count)s)
ON CONFLICT (name) DO UPDATE SET last_number = s.last_number + %(count)s RETURNING last_number
"""

_ISSUE = """
UPDATE billing_invoice i SET state = %s, number = n.number, issued_on = n.issued_on, due_on = n.due_on
FROM unnest(%s::bigint[], %s::text[], %s::date[], %s::date[]) AS n (id, number, issued_on, due_on) WHERE i.id = n.id
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
            description=describe(due.prices[line.key.price_id]),
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
