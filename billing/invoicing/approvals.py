"""PendingApproval: an invoice that is beyond its bounds waits until an operator approves it, and stops no other.

An approval holds for the figures that it was given for, and below; beyond them the invoice waits again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from django.db import transaction
from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from billing.catalog.tenant_lock import lock
from billing.invoicing import line_taxes
from billing.invoicing.invoice_drafts import DraftInvoice
from billing.invoicing.messages import SENTENCES
from billing.models import (
    ApprovalLimit,
    ApprovalMetric,
    BillingPeriod,
    Decision,
    Invoice,
    InvoiceState,
    PendingApproval,
)
from billing.rules import approvals as rules
from billing.rules.approvals import ApprovalLimits
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.errors import CodedError

LAST = 3
"""Invoices whose mean is the usual."""

Limits = Mapping[tuple[str, str], Decimal]
"""By measure and currency."""


class ApprovalError(CodedError):
    """A pending invoice cannot be decided so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Figures:
    """What a close would bill, with tax: the period's invoice, and an invoice of corrections beside it.

    `lines` are also those of the documents in other currencies, which stand beside them.
    """

    total: Money
    lines: int


@transaction.atomic
def decide_approval(
    *,
    period: BillingPeriod,
    decision: Decision,
    by: str,
    reason: str,
    moment: datetime,
    seen: tuple[int, int] | None = None,
) -> PendingApproval:
    """Approve or refuse what is pending of the period. The next close issues what is approved.

    Decided so a second time, it stays as it was decided first; a refusal can become an approval, and the
    other way round while nothing is issued. `seen` are the total in minor units and the lines that were
    looked at. Raises ApprovalError where nothing is pending, where the figures are others by now, without
    a reason, and where the invoice has been issued.
    """
    lock(period.tenant)
    row = PendingApproval.objects.select_related("tenant", "period").filter(period=period).first()
    if row is None:
        raise ApprovalError("nothing-held", tenant=period.tenant.slug)
    if not reason.strip():
        raise ApprovalError("decision-without-reason")
    if seen is not None and seen != (row.total, row.lines):
        raise ApprovalError("figures-changed", total=format_total(row), lines=row.lines)
    if Invoice.objects.of_periods().issued().filter(period=period).exists():
        raise ApprovalError("already-issued")
    if row.state != decision:
        row.state, row.decided_by, row.decision_reason, row.decided_at = decision, by, reason.strip(), moment
        row.save()
    return row


def format_total(row: PendingApproval) -> str:
    """`1250.00 EUR`"""
    return f"{Money.from_minor(row.total, row.currency).text} {row.currency}"


def list_undecided(periods: Iterable[BillingPeriod]) -> Mapping[int, list[PendingApproval]]:
    """By tenant, of whom each has one of the periods, what waits or was refused of earlier ones. One query."""
    starts = {period.tenant_id: period.start for period in periods}
    rows = PendingApproval.objects.exclude(state=Decision.APPROVED).filter(
        tenant__in=starts, period__closed_at__isnull=True
    )
    by_tenant: dict[int, list[PendingApproval]] = defaultdict(list)
    for row in rows.select_related("period").order_by("period__start"):
        if row.period.end <= starts[row.tenant_id]:
            by_tenant[row.tenant_id].append(row)
    return by_tenant


def hold_for_approval(bills: Sequence[DraftInvoice], *, moment: datetime) -> dict[int, PendingApproval]:
    """By tenant what must not be issued now; for a caller that holds their locks. Two queries without bounds.

    What is within its bounds again, or was approved as it is, waits no more.
    """
    if not bills:
        return {}
    limits = load_limits([bill.charges.tenant for bill in bills])
    existing = {
        row.period_id: row
        for row in PendingApproval.objects.filter(period__in=[b.charges.period for b in bills])
    }
    usual = _usual_totals(
        [bill for bill in bills if limits[bill.charges.tenant.pk].get((ApprovalMetric.USUAL, ""))]
    )
    pending = {}
    for bill in bills:
        tenant, row = bill.charges.tenant, existing.get(bill.charges.period.pk)
        figures = compute_figures(bill)
        bounds = _limits_in(limits[tenant.pk], figures.total.currency)
        reasons = [
            *rules.beyond(bounds, total=figures.total, lines=figures.lines, usual=usual.get(tenant.pk))
        ]
        other_reasons = [*_other_currency_reasons(bill, limits[tenant.pk])]
        covered = (
            row is not None
            and _is_approved(row, figures)
            and all(other_reason in row.reason for other_reason in other_reasons)
        )
        if (reasons or other_reasons) and not covered:
            pending[tenant.pk] = _save_pending(
                row, bill, figures, " ".join([*reasons, *other_reasons]), moment
            )
        elif row is not None and not covered:
            row.delete()
    return pending


def load_limits(tenants: Iterable[Tenant]) -> Mapping[int, Limits]:
    """By tenant its own bounds, and beside them those of everyone. One query."""
    ids = {tenant.pk for tenant in tenants}
    common: dict[tuple[str, str], Decimal] = {}
    own: dict[int, dict[tuple[str, str], Decimal]] = defaultdict(dict)
    for row in ApprovalLimit.objects.filter(Q(tenant__in=ids) | Q(tenant__isnull=True)):
        to = common if row.tenant_id is None else own[row.tenant_id]
        to[row.metric, row.currency] = row.limit
    return {pk: common | own[pk] for pk in ids}


def compute_figures(bill: DraftInvoice) -> Figures:
    """What the bill asks to be paid; what it gives back on credit notes is beside it."""
    zero = Money.zero(bill.charges.due.currency or "USD")
    apart = line_taxes.sum_taxes(bill.divided.separate, zero.currency)
    total = sum((row.net + row.tax for row in (*bill.taxes, *apart)), zero)
    other_lines = sum(compute_figures(other).lines for other in bill.others)
    return Figures(total, len(bill.divided.lines) + len(bill.divided.separate) + other_lines)


def _other_currency_reasons(bill: DraftInvoice, limits: Limits) -> Iterator[str]:
    """What documents in other currencies beside the invoice are beyond: its amount in that currency alone."""
    for other in bill.others:
        figures = compute_figures(other)
        bounds = ApprovalLimits(total=_limits_in(limits, figures.total.currency).total)
        yield from rules.beyond(bounds, total=figures.total, lines=0, usual=None)


def _limits_in(limits: Limits, currency: str) -> ApprovalLimits:
    times, lines = limits.get((ApprovalMetric.USUAL, "")), limits.get((ApprovalMetric.LINES, ""))
    total = limits.get((ApprovalMetric.TOTAL, currency))
    return ApprovalLimits(
        times_usual=Fraction(times) if times else None,
        lines=int(lines) if lines else None,
        total=Money.of(Fraction(total), currency) if total else None,
    )


def _usual_totals(bills: Sequence[DraftInvoice]) -> dict[int, Money]:
    """By tenant the mean of its last invoices before the period, in the currency of the bill. One query, if any."""
    if not bills:
        return {}
    by_tenant = {bill.charges.tenant.pk: bill for bill in bills}
    rows = (
        Invoice.objects.issued()
        .of_periods()
        .filter(tenant__in=by_tenant, total__gt=0, period_end__lte=max(b.charges.period.start for b in bills))
        .annotate(place=Window(RowNumber(), partition_by=F("tenant"), order_by=F("period_start").desc()))
        .values_list("tenant", "period_end", "currency", "total")
        .order_by("tenant", "-period_start")
        .filter(place__lte=LAST * 2)  # a few more than counted: some are of another currency, or too late
    )
    amounts: dict[int, list[Money]] = defaultdict(list)
    for tenant, end, currency, total in rows:
        bill = by_tenant[tenant]
        mine = end <= bill.charges.period.start and currency == bill.charges.due.currency
        if mine and len(amounts[tenant]) < LAST:
            amounts[tenant].append(Money.from_minor(total, currency))
    return {tenant: usual for tenant, totals in amounts.items() if (usual := rules.mean(totals)) is not None}


def _is_approved(row: PendingApproval, figures: Figures) -> bool:
    """Whether it was approved, and for no less than that."""
    return (
        row.state == Decision.APPROVED
        and row.currency == figures.total.currency
        and figures.total.minor <= row.total
        and figures.lines <= row.lines
    )


def _save_pending(
    row: PendingApproval | None, bill: DraftInvoice, figures: Figures, reason: str, moment: datetime
) -> PendingApproval:
    """The row that says so. What waits or was refused with just these figures stays as it is."""
    values = {
        "reason": reason,
        "currency": figures.total.currency,
        "total": figures.total.minor,
        "lines": figures.lines,
    }
    if row is not None and all(getattr(row, name) == value for name, value in values.items()):
        return row
    row = row or PendingApproval(tenant=bill.charges.tenant, period=bill.charges.period)
    for name, value in values.items():
        setattr(row, name, value)
    row.state, row.decided_by, row.decision_reason, row.decided_at = Decision.WAITING, "", "", None
    row.since = moment.astimezone(UTC)
    row.save()
    return row


def mark_pending(drafts: Iterable[Invoice]) -> None:
    """Have the drafts say that they wait."""
    fresh = [draft for draft in drafts if draft.state != InvoiceState.PENDING_APPROVAL]
    Invoice.objects.filter(pk__in=[draft.pk for draft in fresh]).update(state=InvoiceState.PENDING_APPROVAL)
    for draft in fresh:
        draft.state = InvoiceState.PENDING_APPROVAL
