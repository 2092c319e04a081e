"""Issuing what is owed at the end of a period: the invoice, and what stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from zoneinfo import ZoneInfo

from billing.catalog import billing_periods
from billing.documents import xrechnung
from billing.documents.parties import buyer_fields, seller_fields
from billing.invoicing import approvals, credit_notes, invoice_drafts, numbering, period_comparison, sellers
from billing.invoicing.close_results import (
    Block,
    Outcome,
    TenantClose,
    make_blocked,
    make_invoiced,
    make_related_document,
)
from billing.invoicing.invoice_drafts import DraftInvoice, PeriodCharges
from billing.models import BillingPeriod, CloseProof, Decision, Invoice, LineKind, PendingApproval
from billing.proof.checks import tenant_sums
from billing.rules.money import Money
from portal.core import vault
from portal.core.tenants.models import Tenant


def issue_periods(
    charges: Sequence[PeriodCharges], *, moment: datetime, compare: bool = False
) -> dict[int, TenantClose]:
    """Issue what is owed, and mark the periods closed. By tenant, for a caller that holds their locks.

    `compare`: say what differs from the period before.
    """
    bills = invoice_drafts.prepare_drafts(charges)
    outcomes = _issue(bills, moment)
    changes = (
        period_comparison.compare_with_last([bill for bill in bills if not bill.untaxed]) if compare else {}
    )
    return {pk: replace(outcome, change=changes.get(pk)) for pk, outcome in outcomes.items()}


def _find_blocks(bill: DraftInvoice) -> list[Block]:
    """What keeps documents from being issued; nothing is asked of a seller in whose name nothing is."""
    issues = bill.has_invoice or bill.others or bill.divided.credits
    no_seller = sellers.describe_missing(bill.seller) if issues else ""
    no_xrechnung = "" if no_seller else _missing_for_xrechnung(bill)
    sentences = {
        "no-seller": no_seller,
        "no-key": vault.lacking() if issues else "",  # evidence is signed
        "no-xrechnung": no_xrechnung,
        "untaxed": bill.untaxed,
    }
    return [Block(code, sentence) for code, sentence in sentences.items() if sentence]


def _missing_for_xrechnung(bill: DraftInvoice) -> str:
    """Nothing is asked where no invoice is issued: a credit note has the parties of its invoice."""
    if not (
        bill.has_invoice or bill.divided.separate or any(other.divided.separate for other in bill.others)
    ):
        return ""
    return xrechnung.missing(seller_fields(bill.seller), buyer_fields(bill.charges.tenant))


def _issue(bills: Sequence[DraftInvoice], moment: datetime) -> dict[int, TenantClose]:
    outcomes = {
        bill.charges.tenant.pk: make_blocked(bill.charges.tenant.slug, blocks)
        for bill in bills
        if (blocks := _find_blocks(bill))
    }
    bills = [bill for bill in bills if bill.charges.tenant.pk not in outcomes]
    carried = {bill.charges.tenant.pk: bill for bill in bills if bill.has_invoice and bill.total.amount < 0}
    due = [bill for bill in bills if bill.charges.tenant.pk not in carried]
    pending = approvals.hold_for_approval(due, moment=moment)
    waiting = [bill for bill in due if bill.charges.tenant.pk in pending]
    due = [bill for bill in due if bill.charges.tenant.pk not in pending]
    billed = [bill for bill in due if bill.has_invoice]
    drafted = [*billed, *(bill for bill in waiting if bill.has_invoice)]
    for bill in bills:
        if bill.charges.existing_draft is not None and bill not in drafted:
            numbering.discard_draft(invoice=bill.charges.existing_draft)
    drafts = dict(
        zip([bill.charges.tenant.pk for bill in drafted], invoice_drafts.draft_invoices(drafted), strict=True)
    )
    approvals.mark_pending(draft for pk, draft in drafts.items() if pk in pending)
    invoices = {pk: draft for pk, draft in drafts.items() if pk not in pending}
    others = {bill.charges.tenant.pk: _draft_related(bill) for bill in due}
    documents = [(bill, invoices[bill.charges.tenant.pk]) for bill in billed]
    documents += [(bill, other) for bill in due for other in others[bill.charges.tenant.pk]]
    numbering.issue_invoices(
        [
            (bill.charges.tenant, invoice, _issue_date(moment, bill.charges.period, invoice))
            for bill, invoice in documents
        ],
        moment=moment,
    )
    _mark_closed(moment, [bill.charges.period for bill in bills if bill.charges.tenant.pk not in pending])
    _keep_proofs(moment, due)
    outcomes |= {pk: _make_carried(bill) for pk, bill in carried.items()}
    outcomes |= {
        bill.charges.tenant.pk: _make_pending(bill, pending[bill.charges.tenant.pk]) for bill in waiting
    }
    for bill in due:
        tenant = bill.charges.tenant
        outcomes[tenant.pk] = _make_result(tenant, invoices.get(tenant.pk), others[tenant.pk])
    return outcomes


def _issue_date(moment: datetime, period: BillingPeriod, invoice: Invoice) -> date:
    """Where a tenant moved west meanwhile, its day may be the one before its invoice's: a credit note is no older."""
    day = billing_periods.day_of(moment, period)
    if invoice.original is None or invoice.original.issued_on is None:
        return day
    return max(day, invoice.original.issued_on)


def _draft_related(bill: DraftInvoice) -> list[Invoice]:
    """The drafts of what is issued beside the period's invoice: corrections, and what other currencies have."""
    apart = [invoice_drafts.draft_correction(bill)] if bill.divided.separate else []
    own = apart + credit_notes.draft_credit_notes(bill)
    return own + [document for other in bill.others for document in _draft_related(other)]


def _make_result(tenant: Tenant, invoice: Invoice | None, others: Sequence[Invoice]) -> TenantClose:
    if invoice is not None:
        outcome = make_invoiced(tenant.slug, invoice, Outcome.ISSUED)
    else:
        outcome = TenantClose(tenant.slug, Outcome.CORRECTED if others else Outcome.NOTHING)
    return replace(outcome, related_documents=tuple(make_related_document(other) for other in others))


def _make_carried(bill: DraftInvoice) -> TenantClose:
    """More is taken off than the period costs: no invoice says so, the next one takes all of it up."""
    total = bill.total
    if any(line.kind == LineKind.MANUAL and line.amount < 0 for line in bill.divided.lines):
        return TenantClose(
            bill.charges.tenant.slug,
            Outcome.CARRIED,
            reason=f"What is taken off by hand or corrected exceeds this period's charges by {(-total).text} "
            f"{total.currency}; the next invoice takes the difference up.",
        )
    return TenantClose(
        bill.charges.tenant.slug,
        Outcome.CARRIED,
        reason=f"Corrections of earlier periods exceed this period's charges by {(-total).text} {total.currency}; "
        f"they go on invoices here, so the next invoice takes the difference up.",
    )


def _make_pending(bill: DraftInvoice, row: PendingApproval) -> TenantClose:
    """It is beyond its bounds, and nobody has approved as much."""
    slug = bill.charges.tenant.slug
    month = f"{bill.charges.period.start.astimezone(ZoneInfo(bill.charges.period.timezone)):%Y-%m}"
    why, todo = row.reason, f"Approve or refuse it: approve_invoice {slug} {month} --why REASON."
    if row.state == Decision.REFUSED:
        why = f"{why} {row.decided_by} refused it: {row.decision_reason.rstrip('.')}."
        todo = "Correct what is wrong and close again."
    total = Money.from_minor(row.total, row.currency)
    blocks = (Block("pending", why),)
    return TenantClose(slug, Outcome.PENDING_APPROVAL, total=total, reason=f"{why} {todo}", blocks=blocks)


def _mark_closed(moment: datetime, periods: Sequence[BillingPeriod]) -> None:
    BillingPeriod.objects.filter(pk__in=[period.pk for period in periods]).update(closed_at=moment)


def _keep_proofs(moment: datetime, bills: Sequence[DraftInvoice]) -> None:
    sums = tenant_sums([bill.charges.period for bill in bills])
    CloseProof.objects.bulk_create(
        [
            CloseProof(
                period=bill.charges.period,
                tenant=bill.charges.tenant,
                closed_at=moment,
                accepted_incomplete=bill.charges.terms.get("accepted_incomplete", ""),
                sums=sums[bill.charges.period.pk],
            )
            for bill in bills
        ]
    )
