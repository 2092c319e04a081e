"""What a month's FOCUS dataset is made of: its issued documents, and what its open periods have come to so far.

A document belongs to one month alone: an invoice to that in which its billing period begins, a credit note to that of
the close that issued it, or, given by hand, to that of the period in which it was issued. So the dataset of a closed
month stays as it is when something of it is credited later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from billing.catalog import billing_periods
from billing.catalog.billing_periods import Lacking
from billing.documents.parties import buyer_fields, seller_fields
from billing.invoicing import (
    close_inputs,
    earlier_charges,
    invoice_drafts,
    line_taxes,
    sellers,
    statements,
)
from billing.invoicing.invoice_drafts import PeriodCharges
from billing.invoicing.statement_inputs import StatementInputs
from billing.models import CLOSED_PERIOD, BillingPeriod, DocumentKind, Invoice, InvoiceLine
from billing.rating import billed_usage
from billing.rating.billed_usage import Reach
from billing.rules import period as rules
from billing.rules.period import Period
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope

Month = tuple[int, int]
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class TaxSum:
    """The tax of one category and rate on a document, in minor units."""

    category: str
    rate: Decimal
    tax: int


@dataclass(frozen=True, slots=True)
class Document:
    """A document whose lines are charges; without a number it is only what would be billed now."""

    tenant: Tenant
    number: str
    kind: str
    corrects: str  # the number of the invoice that a credit note takes back from
    currency: str
    seller: str
    buyer: str
    billed: Period  # the billing period in which it is billed
    served: Period  # that of its taxes: of a credit note its invoice's
    lines: Sequence[InvoiceLine]
    taxes: Sequence[TaxSum]
    rated_through: int
    before: Reach  # what had been billed when it was issued


def month_span(month: Month) -> tuple[datetime, datetime]:
    """The month in UTC, a day wider at each end: in some zone it is that month then."""
    year, number = month
    after = rules.shifted(month, 1)
    return datetime(year, number, 1, tzinfo=UTC) - _DAY, datetime(*after, 1, tzinfo=UTC) + _DAY


def issued(tenant: Tenant, month: Month) -> Iterator[Document]:
    """The month's documents that hold, invoices first, each in the order of numbers. Three queries a document."""
    for invoice in _list_invoices(tenant, month):
        yield _read_invoice(tenant, invoice, Period(_utc(invoice.period_start), _utc(invoice.period_end)))
    for note, period in _list_credit_notes(tenant, month):
        yield _read_invoice(tenant, note, period)


def list_service_periods(tenant: Tenant, month: Month) -> set[int]:
    """In which billing periods the usage on the month's issued documents was. At most four queries."""
    notes = [note for note, _ in _list_credit_notes(tenant, month)]
    lines = InvoiceLine.objects.filter(tenant=tenant, invoice__in=[*_list_invoices(tenant, month), *notes])
    return set(lines.values_list("service_period", flat=True))


def open_periods(tenants: Sequence[Tenant], month: Month) -> dict[int, list[BillingPeriod]]:
    """By tenant the stored periods of the month that are not closed. Two queries."""
    year, number = month
    stored = billing_periods.periods_starting_in(tenants, year=year, month=number, making=False)
    with_period = [tenant for tenant in tenants if tenant.pk in stored]
    return billing_periods.open_periods(with_period, year=year, month=number)


def drafted(tenant: Tenant, periods: Iterable[BillingPeriod], *, own: bool) -> Iterator[Document]:
    """What closes of the periods would bill now, after those of earlier open ones, one document a currency.

    Nothing is written, no number is used.

    `own`: inside the tenant's scope, which shows no prices of plans.
    """
    for period in periods:
        scope: AbstractContextManager[None] = acting_scope(tenant) if own else nullcontext()
        with scope:
            documents = _draft(tenant, period)
        yield from documents


def _draft(tenant: Tenant, period: BillingPeriod) -> list[Document]:
    inputs = StatementInputs(frozenset([tenant.pk]))
    made = statements.make_whole_statements(
        [period],
        close_inputs.load_rated_periods([period]),
        lacking=Lacking.LEFT_OUT,
        before=earlier_charges.list_before(period, inputs),
        inputs=inputs,
    )
    due, earlier = made.outcomes[tenant.pk], earlier_charges.read_earlier(made, tenant)
    if isinstance(due, statements.MixedCurrenciesError):
        return []
    own = earlier_charges.subtract(due, earlier)
    by_hand = earlier_charges.takes_manual_lines(period, own, earlier, inputs)
    charges = PeriodCharges(tenant, period, own, None, {})
    (bill,) = invoice_drafts.prepare_drafts([charges], by_hand=by_hand)
    reach = billed_usage.of_tenants([tenant.pk]).get(tenant.pk, [])
    seller = seller_fields(sellers.load_seller())["name"]
    buyer = buyer_fields(tenant)["name"]
    whole, documents = billing_periods.as_rule(period), []
    for one in (bill, *bill.others):
        lines = [
            *one.divided.lines,
            *one.divided.separate,
            *(line for credit in one.divided.credits.values() for line in credit),
        ]
        for position, line in enumerate(lines, start=1):
            line.position = position
        if lines and not one.untaxed:
            sums = line_taxes.sum_taxes(lines, one.charges.due.currency)
            taxes = [TaxSum(row.kind.category, row.kind.rate, row.tax.minor) for row in sums]
            documents.append(
                Document(
                    tenant,
                    "",
                    DocumentKind.INVOICE,
                    "",
                    one.charges.due.currency,
                    seller,
                    buyer,
                    whole,
                    whole,
                    lines,
                    taxes,
                    due.rated_through,
                    reach,
                )
            )
    return documents


def _list_invoices(tenant: Tenant, month: Month) -> list[Invoice]:
    since, until = month_span(month)
    rows = Invoice.objects.issued().filter(
        tenant=tenant, period_start__gte=since, period_start__lt=until, original=None
    )
    named = [row for row in rows if _month_of(row.period_start, row.timezone) == month]
    return sorted(named, key=lambda row: (row.kind != DocumentKind.INVOICE, row.pk))


def _list_credit_notes(tenant: Tenant, month: Month) -> Iterator[tuple[Invoice, Period]]:
    since, until = month_span(month)
    notes = Invoice.objects.issued().filter(
        tenant=tenant, kind=DocumentKind.CREDIT_NOTE, issued_on__gte=since
    )
    notes = notes.select_related("original").order_by("pk")
    closes = {note.pk: note.terms.get(CLOSED_PERIOD) for note in notes}
    periods = BillingPeriod.objects.in_bulk({pk for pk in closes.values() if pk})
    for note in notes:
        period = periods.get(closes[note.pk] or 0)
        if period is not None:
            billed, zone = billing_periods.as_rule(period), period.timezone
        elif note.issued_on is not None and note.issued_on < until.date() + 31 * _DAY:
            billed, zone = _period_of(tenant, note.issued_on), note.timezone
        else:
            continue
        if _month_of(billed.start, zone) == month:
            yield note, billed


def _period_of(tenant: Tenant, day: date) -> Period:
    """The billing period that holds the day, stored or not."""
    noon = rules.midnight(day, zone=tenant.zone) + _DAY / 2
    stored = BillingPeriod.objects.filter(tenant=tenant, start__lte=noon, end__gt=noon).first()
    if stored is not None:
        return billing_periods.as_rule(stored)
    return rules.billing_period(noon, zone=tenant.zone, anchor_day=tenant.anchor_day)


def _read_invoice(tenant: Tenant, invoice: Invoice, billed: Period) -> Document:
    original = invoice.original
    taxes = invoice.taxes.order_by("category", "rate").values_list("category", "rate", "tax")
    return Document(
        tenant,
        invoice.number or "",
        invoice.kind,
        (original.number or "") if original is not None else "",
        invoice.currency,
        invoice.seller["name"],
        invoice.buyer["name"],
        billed,
        Period(_utc(invoice.period_start), _utc(invoice.period_end)),
        list(invoice.lines.select_related("service_period").order_by("position")),
        [TaxSum(*row) for row in taxes],
        invoice.rated_through,
        billed_usage.before(invoice),
    )


def _month_of(moment: datetime, zone: str) -> Month:
    local = moment.astimezone(ZoneInfo(zone))
    return local.year, local.month


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def preliminary(openings: Mapping[int, Sequence[BillingPeriod]], *, month: Month, moment: datetime) -> bool:
    """Whether the month's dataset can still change: it is not over, or a period of it is not closed."""
    return moment < datetime(*rules.shifted(month, 1), 1, tzinfo=UTC) or any(openings.values())
