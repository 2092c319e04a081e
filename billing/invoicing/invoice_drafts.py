"""From a statement to drafts: lines, taxes and sums, and where each correction goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from billing.catalog.line_descriptions import describe_line
from billing.documents.parties import buyer_fields, seller_fields
from billing.invoicing import corrections, line_taxes, manual_lines, sellers
from billing.invoicing.active_tenants import list_billable_tenants
from billing.invoicing.corrections import BilledLines, DividedLines
from billing.invoicing.line_taxes import Taxes
from billing.invoicing.statements import Statement
from billing.models import (
    BillingPeriod,
    DocumentKind,
    Invoice,
    InvoiceLine,
    InvoiceState,
    InvoiceTax,
    ManualLine,
    Seller,
    Subscription,
    TaxCategory,
)
from billing.models.plans import BY_INVOICE
from billing.rules.money import Money
from billing.rules.statement_lines import Line, TermKey
from billing.rules.supply import TaxError
from billing.rules.tax import Tax, TaxRow
from portal.core.tenants.models import Corrections, Tenant, ZeroInvoices
from portal.languages import in_language

UNTAXED = Tax(TaxCategory.ZERO, Decimal(0))


@dataclass(frozen=True)
class PeriodCharges:
    """What a tenant owes at a period's end. `tenant` is locked."""

    tenant: Tenant
    period: BillingPeriod
    due: Statement
    existing_draft: Invoice | None  # the period's draft, which is written anew
    terms: dict[str, str]


@dataclass(frozen=True)
class DraftInvoice:
    """What is owed, as the lines of the documents that are to say so."""

    charges: PeriodCharges
    divided: DividedLines
    seller: Seller
    has_invoice: bool  # its period has an invoice, be it of nothing
    period_tax: Tax = UNTAXED  # how what is supplied in its period is taxed
    untaxed: str = ""  # why it cannot be told how its lines are taxed: then nothing can be drafted
    others: tuple[DraftInvoice, ...] = ()  # of other currencies, whose lines are all apart or credits

    @cached_property
    def taxes(self) -> list[TaxRow]:
        """Of the period's invoice; empty where it has no lines."""
        return line_taxes.sum_taxes(self.divided.lines, self.charges.due.currency)

    @property
    def total(self) -> Money:
        """What the period's invoice comes to. ValueError where there is neither a line nor a currency."""
        return line_taxes.total_with_tax(self.taxes, self.charges.due.currency)


def prepare_drafts(charges: Sequence[PeriodCharges], *, by_hand: bool = True) -> list[DraftInvoice]:
    """Their lines, with those by hand where `by_hand`, taxed, and divided by the policy of corrections.

    Six queries at most, four more where a period comes to less than nothing, and one for each tenant that leaves so.
    """
    seller = sellers.load_seller()
    waiting = manual_lines.list_pending([owing.tenant for owing in charges] if by_hand else [])
    charges = _set_currencies(charges, waiting, seller)
    by_tenant = {
        tenant_charges.tenant.pk: _split_currencies(tenant_charges, waiting.get(tenant_charges.tenant.pk, []))
        for tenant_charges in charges
    }
    billed = corrections.load_corrected_lines(
        line for parts in by_tenant.values() for _, lines in parts for line in lines
    )
    taxes = line_taxes.load_taxes([tenant_charges.tenant for tenant_charges in charges], seller)
    bills = []
    for (tenant_charges, lines), *others in by_tenant.values():
        bill = _prepare_draft(tenant_charges, lines, billed, taxes, seller)
        other_bills = tuple(
            _prepare_draft(other, other_lines, billed, taxes, seller, apart=True)
            for other, other_lines in others
        )
        untaxed = next((one.untaxed for one in (bill, *other_bills) if one.untaxed), "")
        bills.append(replace(bill, others=other_bills, untaxed=untaxed))
    below = [bill.charges.period for bill in bills if bill.has_invoice and bill.total.amount < 0]
    leaving = {period.tenant_id for period in below} - list_billable_tenants(below) if below else set()
    return [
        _convert_to_credits(bill, by_tenant[bill.charges.tenant.pk][0][1])
        if bill.charges.tenant.pk in leaving
        else bill
        for bill in bills
    ]


def _convert_to_credits(bill: DraftInvoice, lines: Sequence[InvoiceLine]) -> DraftInvoice:
    """Of a tenant that leaves: no next invoice takes off what it is owed, so credit notes do, whatever the policy.

    Of its last period, too, as of a fee that was billed before it. What takes off more than was billed holds them up
    no longer, and waits.
    """
    currency, billed = bill.charges.due.currency, corrections.load_billed_lines(lines)
    taking = [corrections.mark_correction(line, billed) for line in lines]
    divided = corrections.divide_lines(
        taking, billed=billed, policy=Corrections.CREDIT_NOTE, currency=currency
    )
    if not divided.credits:
        return bill
    own = corrections.drop_excess_credit(divided.lines, currency)
    return replace(bill, divided=replace(divided, lines=own), has_invoice=bool(own))


def _split_currencies(
    charges: PeriodCharges, waiting: Sequence[ManualLine]
) -> list[tuple[PeriodCharges, list[InvoiceLine]]]:
    """What is owed in the period's currency first, then in each other one, with its lines, those by hand included.

    Behind the tenant's own lines stand those of the tenants that it pays for.
    """
    per_currency = [replace(charges, due=due) for due in (charges.due, *charges.due.others)]
    currencies = {currency_charges.due.currency for currency_charges in per_currency}
    apart = {
        currency_charges.currency: currency_charges
        for currency_charges in charges.due.paid
        if currency_charges.lines and currency_charges.currency not in currencies
    }
    per_currency += [
        replace(charges, due=replace(currency_charges, lines=[])) for currency_charges in apart.values()
    ]
    currencies |= apart.keys()
    per_currency += [
        replace(charges, due=replace(charges.due, lines=[], currency=currency))
        for currency in sorted({line.currency for line in waiting} - currencies)
        if charges.due.currency
    ]
    return [
        (
            currency_charges,
            [*make_lines(currency_charges.tenant, currency_charges.due)]
            + [
                line
                for paid in charges.due.paid
                if paid.currency == currency_charges.due.currency
                for line in _make_paid_lines(charges, paid)
            ]
            + manual_lines.make_lines(
                waiting, period=currency_charges.period, currency=currency_charges.due.currency
            ),
        )
        for currency_charges in per_currency
    ]


def _prepare_draft(
    charges: PeriodCharges,
    lines: list[InvoiceLine],
    billed: BilledLines,
    taxes: Taxes,
    seller: Seller,
    *,
    apart: bool = False,
) -> DraftInvoice:
    """Corrections are taxed as what they correct was, and all else as its service period is.

    `apart`: in another currency than the period's invoice, so all of it stands beside that.
    """
    try:
        supplied = {line.service_period_id: line.service_period for line in lines if not line.correction}
        period_taxes = {pk: taxes.of(charges.tenant, period) for pk, period in supplied.items()}
        for line in lines:
            before = billed.tax_of(line) if line.correction else period_taxes[line.service_period_id]
            line_taxes.set_tax(line, before or taxes.of(charges.tenant, line.service_period))
    except TaxError as error:
        return DraftInvoice(charges, DividedLines([]), seller, has_invoice=False, untaxed=str(error))
    currency = charges.due.currency
    fixed = lines[0].taxed_as if lines else Tax(TaxCategory.STANDARD, charges.tenant.tax_rate)
    policy = Corrections.OWN_INVOICE if apart else charges.tenant.corrections or seller.corrections
    divided = corrections.divide_lines(lines, billed=billed, policy=policy, currency=currency)
    if apart:
        divided = _separate_lines(divided, currency)
    empty = bool(currency) and not divided and not apart and _issues_zeros(charges.tenant, seller)
    now = period_taxes.get(charges.period.pk, fixed)
    return DraftInvoice(charges, divided, seller, has_invoice=bool(divided.lines) or empty, period_tax=now)


def _separate_lines(divided: DividedLines, currency: str) -> DividedLines:
    """All that is no credit as an invoice apart; what takes off more than there is waits until there is more."""
    return DividedLines(
        [], corrections.drop_excess_credit(divided.lines + divided.separate, currency), divided.credits
    )


def draft_invoices(bills: Sequence[DraftInvoice]) -> list[Invoice]:
    """The drafts of their periods with their lines, in that order, for a caller that holds the tenants' locks."""
    if not bills:
        return []
    replaced = _load_voided([bill.charges.period for bill in bills])
    invoices = []
    for bill in bills:
        charges = bill.charges
        invoice = charges.existing_draft or Invoice(tenant=charges.tenant, period=charges.period)
        invoice.replaces_id = replaced.get(charges.period.pk)
        invoices.append(_fill_invoice(invoice, bill))
        if charges.existing_draft is not None:
            invoice.taxes.all().delete()
            invoice.lines.all().delete()
    save_drafts(
        [(invoice, bill.divided.lines, bill.taxes) for invoice, bill in zip(invoices, bills, strict=True)]
    )
    return invoices


def draft_correction(bill: DraftInvoice) -> Invoice:
    """The draft of an invoice of corrections, of the bill's lines that are to be apart."""
    charges = bill.charges
    invoice = Invoice(kind=DocumentKind.CORRECTION, tenant=charges.tenant, period=charges.period)
    taxes = line_taxes.sum_taxes(bill.divided.separate, charges.due.currency)
    save_drafts([(_fill_invoice(invoice, bill, taxes), bill.divided.separate, taxes)])
    return invoice


def save_drafts(documents: Sequence[tuple[Invoice, Sequence[InvoiceLine], Sequence[TaxRow]]]) -> None:
    """Save drafts with their lines, numbered in that order, and their taxes; those that are saved are saved again."""
    for invoice, _lines, _taxes in documents:
        if invoice.pk:
            invoice.save()
    Invoice.objects.bulk_create([invoice for invoice, _lines, _taxes in documents if not invoice.pk])
    placed = []
    for invoice, lines, _taxes in documents:
        for position, line in enumerate(lines, start=1):
            line.invoice, line.position = invoice, position
            placed.append(line)
    InvoiceLine.objects.bulk_create(placed)
    reasons = line_taxes.load_reasons([(invoice, taxes) for invoice, _lines, taxes in documents])
    InvoiceTax.objects.bulk_create(
        [
            record
            for (invoice, _lines, taxes), tax_reasons in zip(documents, reasons, strict=True)
            for record in line_taxes.make_tax_rows(invoice, taxes, tax_reasons)
        ]
    )


def set_totals(invoice: Invoice, taxes: Sequence[TaxRow]) -> Invoice:
    """The invoice with the sums that its taxes come to."""
    zero = Money.zero(invoice.currency)
    subtotal, tax = sum((row.net for row in taxes), zero), sum((row.tax for row in taxes), zero)
    invoice.subtotal, invoice.tax, invoice.total = subtotal.minor, tax.minor, (subtotal + tax).minor
    return invoice


def _fill_invoice(invoice: Invoice, bill: DraftInvoice, taxes: Sequence[TaxRow] | None = None) -> Invoice:
    """With everything but its lines, not saved."""
    charges = bill.charges
    invoice.tenant = charges.tenant
    invoice.currency = charges.due.currency
    invoice.period_start, invoice.period_end = charges.period.start, charges.period.end
    invoice.timezone = charges.period.timezone
    invoice.seller, invoice.buyer, invoice.terms = (
        seller_fields(bill.seller),
        buyer_fields(charges.tenant),
        charges.terms,
    )
    invoice.tax_name, invoice.tax_rate = bill.seller.tax_name, bill.period_tax.rate
    invoice.rated_through = charges.due.rated_through
    return set_totals(invoice, bill.taxes if taxes is None else taxes)


def _issues_zeros(tenant: Tenant, seller: Seller) -> bool:
    return (tenant.zero_invoices or seller.zero_invoices) == ZeroInvoices.ISSUE


def _set_currencies(
    charges: Sequence[PeriodCharges], waiting: Mapping[int, Sequence[ManualLine]], seller: Seller
) -> list[PeriodCharges]:
    """Those without use in the currency of what was added by hand, or of the plan that holds at the period's end."""
    currencies: dict[int, str] = {
        pk: min(line.currency for line in lines) for pk, lines in waiting.items() if lines
    }
    bare = [
        tenant_charges
        for tenant_charges in charges
        if not tenant_charges.due.currency
        and tenant_charges.tenant.pk not in currencies
        and _issues_zeros(tenant_charges.tenant, seller)
    ]
    if bare:
        ends = {tenant_charges.tenant.pk: tenant_charges.period.end for tenant_charges in bare}
        plans = Subscription.objects.filter(tenant__in=ends, plan__settles__in=BY_INVOICE).order_by("since")
        rows = plans.values_list("tenant", "since", "until", "plan__currency")
        currencies |= {
            tenant: currency
            for tenant, since, until, currency in rows
            if since < ends[tenant] and (until is None or until >= ends[tenant])
        }
    return [
        replace(
            tenant_charges, due=replace(tenant_charges.due, currency=currencies[tenant_charges.tenant.pk])
        )
        if not tenant_charges.due.currency and tenant_charges.tenant.pk in currencies
        else tenant_charges
        for tenant_charges in charges
    ]


def _load_voided(periods: Sequence[BillingPeriod]) -> dict[int, int]:
    """By period the newest of its invoices that are void."""
    void = Invoice.objects.of_periods().filter(period__in=periods, state=InvoiceState.VOID)
    return dict(void.order_by("pk").values_list("period", "pk"))


def _make_paid_lines(charges: PeriodCharges, paid: Statement) -> list[InvoiceLine]:
    """The lines of what another tenant used, which say its name before each project."""
    lines = make_lines(charges.tenant, paid)
    users = {
        statement.user.slug: statement.user.name
        for statement in charges.due.paid
        if statement.user is not None
    }
    if paid.user is not None:
        name = paid.user.name
        if list(users.values()).count(name) > 1:
            name = f"{name} ({paid.user.slug})"
        for line in lines:
            line.project = f"{name}: {line.project}" if line.project else name
    return lines


def make_lines(tenant: Tenant, due: Statement) -> list[InvoiceLine]:
    """The statement's lines on an invoice to the tenant, which they do not have yet; in its language."""
    with in_language(tenant.language):
        return _lines_of(tenant, due)


def _lines_of(tenant: Tenant, due: Statement) -> list[InvoiceLine]:
    return [
        InvoiceLine(
            tenant=tenant,
            service_period=due.periods[line.key.service],
            seconds_num=Decimal(line.resource_seconds.numerator),
            seconds_den=line.resource_seconds.denominator,
            unit_price=line.unit_price,
            terms=dict(line.terms),
            amount=line.amount.minor,
            correction=line.correction,
            first_charge=line.first_charge,
            **_line_subject(line, due),
        )
        for line in due.lines
    ]


def _line_subject(line: Line, due: Statement) -> dict[str, Any]:
    """What a line is for: use of a project, or a term of the plan."""
    key = line.key
    if isinstance(key, TermKey):
        name = due.terms[key.kind, key.term_id].name
        return {"kind": key.kind.value, "term_id": key.term_id, "description": name}
    return {
        "project_id": due.projects[key.project],
        "project": key.project,
        "meter": key.meter.value,
        "price_id": key.price_id,
        "description": describe_line(due.prices[key.price_id], former_price=line.former_price),
        "unit": key.meter.unit,
        "unit_code": due.prices[key.price_id].unit_code,
    }
