"""A tenant's credit balance: money that came and pays for nothing yet. It pays what is due, the oldest first.

Whoever changes it holds the tenant's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet, Sum

from billing.catalog.tenant_lock import lock
from billing.models import (
    OPEN_CHECKOUTS,
    UNDECIDED,
    UNDER_WAY,
    UNEXPLAINED,
    CheckoutSession,
    CreditEntry,
    CreditKind,
    Invoice,
    PaymentAttempt,
    PaymentDispute,
    PaymentRefund,
)
from billing.models.invoices import InvoiceQuerySet
from billing.receivables import pauses, settlement
from billing.receivables.messages import SENTENCES
from billing.rules.money import Money
from billing.rules.period import midnight
from billing.wallets import batch
from portal.core.tenants.models import Tenant
from portal.errors import CodedError

REFERENCE = "Credit balance"
"""What the payments of invoices by it are called; more than one of an invoice are counted."""


class CreditBalanceError(CodedError):
    """A credit balance cannot be changed so; the message says why and what to do."""

    sentences = SENTENCES


def get_balance(tenant: Tenant | int, currency: str) -> int:
    """In minor units; never below zero."""
    rows = CreditEntry.objects.filter(tenant=tenant, currency=currency)
    return int(rows.aggregate(sum=Sum("amount"))["sum"] or 0)


def list_balances(tenants: Sequence[int] | None = None) -> dict[tuple[int, str], int]:
    """By tenant and currency, those above zero; of all tenants, or of these. One query."""
    rows = CreditEntry.objects.all() if tenants is None else CreditEntry.objects.filter(tenant__in=tenants)
    sums = rows.values("tenant", "currency").annotate(sum=Sum("amount")).filter(sum__gt=0)
    return {(row["tenant"], row["currency"]): int(row["sum"]) for row in sums.order_by("tenant", "currency")}


def receive_credit(
    *, tenant: Tenant, currency: str, amount: int, memo: str, by: str, at: datetime
) -> CreditEntry:
    """Add `amount` minor units. For a caller that holds the tenant's lock and books the cause beside it."""
    return _add_entry(tenant.pk, currency, amount, CreditKind.RECEIVED, memo, by, at)


def use_credit(*, tenant: Tenant, currency: str, at: datetime, on: date) -> int:
    """Let the balance pay what is due of the tenant's invoices, the oldest first; how many minor units it paid.

    Asked again, it pays what is due then and still in it. Left out are invoices for which a card is being charged or
    a page is open, which rest, and of which a payment is disputed or was given back without a credit note.
    """
    lock(tenant)
    left = get_balance(tenant, currency)
    if left <= 0:
        return 0
    payable = _filter_payable(Invoice.objects.filter(tenant=tenant, currency=currency), on).order_by(
        "due_on", "pk"
    )
    paid = 0
    for invoice in payable:
        # A charge is prepared under the same lock: whichever comes second sees the other.
        locked = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
        if _filter_payable(Invoice.objects.filter(pk=locked.pk), on).exists():
            paid += _pay_invoice(locked, left - paid, at, on)
        if paid == left:
            break
    return paid


@dataclass(frozen=True, slots=True)
class UsableBalance:
    """A balance beside something that it could pay."""

    tenant: Tenant
    currency: str

    def __str__(self) -> str:
        return f"Credit balance of {self.tenant.slug} in {self.currency}"


def list_usable(*, on: date) -> list[UsableBalance]:
    """Balances beside something that they could pay now: what a charge, a page or its issue kept them from is free.

    One query where nobody has one, three at most.
    """
    there = list_balances()
    if not there:
        return []
    owing = _filter_payable(Invoice.objects.filter(tenant__in={tenant for tenant, _ in there}), on)
    pairs = set(owing.values_list("tenant", "currency")) & there.keys()
    tenants = Tenant.objects.in_bulk({tenant for tenant, _ in pairs})
    return [UsableBalance(tenants[tenant], currency) for tenant, currency in sorted(pairs)]


def use_balances(*, moment: datetime) -> None:
    """Let each balance pay what it can, each in a transaction of its own. Again, there is nothing left to pay.

    One that fails is logged, and tried again by the next round.
    """

    def pay(usable: UsableBalance) -> None:
        with transaction.atomic():
            use_credit(tenant=usable.tenant, currency=usable.currency, at=moment, on=moment.date())

    with suppress(batch.LeftOverError):
        batch.run_isolated(list_usable(on=moment.date()), pay)


def promise_credit(invoices: Sequence[Invoice], *, at: datetime | None) -> None:
    """Say on invoices that are about to be issued what balances pay of them. One query where nobody has one.

    One whose tenant is paused waits, as it does for `use_credit`. For a caller that holds the tenants' locks, and lets
    them pay by `settle_promises` in the same transaction: a document never changes, so what it asks for is known before
    it is issued. `at` None: on the days of issue.
    """
    left = list_balances([invoice_to_issue.tenant_id for invoice_to_issue in invoices])
    for invoice in invoices if left else ():
        key = (invoice.tenant_id, invoice.currency)
        amount = min(left.get(key, 0), invoice.total - invoice.prepaid)
        if amount > 0 and not _is_tenant_paused(
            invoice, at
        ):  # never of a credit note, whose total is below zero
            invoice.from_credit = amount
            Invoice.objects.filter(pk=invoice.pk).update(from_credit=amount)
            left[key] -= amount


def _is_tenant_paused(invoice: Invoice, at: datetime | None) -> bool:
    day = at.date() if at is not None else invoice.issued_on
    return (
        day is not None and pauses.filter_active(day).filter(tenant=invoice.tenant_id, invoice=None).exists()
    )


def settle_promises(invoices: Sequence[Invoice], *, at: datetime | None) -> None:
    """Let balances pay of invoices that were just issued what these say. No query where nobody has one.

    For a caller that holds the tenants' locks. `at` None: at the beginning of their days.
    """
    for invoice in invoices:
        if invoice.from_credit and invoice.issued_on is not None:
            begun = midnight(invoice.issued_on, zone=ZoneInfo(invoice.timezone))
            _move_amount(invoice, invoice.from_credit, CreditKind.USED, at or begun, invoice.issued_on)


def withdraw_credit(
    *, tenant: Tenant, currency: str, amount: int, memo: str, at: datetime, on: date
) -> CreditEntry:
    """Take `amount` out because its transfer went back; what it paid meanwhile is due again, the newest first.

    For a caller that holds the tenant's lock. Raises CreditBalanceError where some of it was paid back to the tenant.
    """
    _free_credit(tenant, currency, amount, at, on)
    return _add_entry(tenant.pk, currency, -amount, CreditKind.WITHDRAWN, memo, "bank statement", at)


def _free_credit(tenant: Tenant, currency: str, amount: int, at: datetime, on: date) -> None:
    """Have so much in the balance, and take it from what the balance paid if need be."""
    missing = amount - get_balance(tenant, currency)
    used = CreditEntry.objects.filter(tenant=tenant, currency=currency, kind=CreditKind.USED)
    for entry in used.select_related("payment__invoice").order_by("-pk") if missing > 0 else ():
        if missing > 0 and entry.payment is not None:
            missing -= _take_back_payment(entry.payment.invoice, missing, at, on)
    if missing > 0:
        gone = Money.from_minor(missing, currency).text
        raise CreditBalanceError("credit-paid-back", amount=gone, currency=currency, tenant=tenant)


def take_overpayment(*, invoice: Invoice, amount: int, at: datetime, on: date) -> None:
    """Move what was paid too much of an invoice to its tenant's balance. For a caller that holds the tenant's lock."""
    _move_amount(invoice, -amount, CreditKind.OVERPAID, at, on)


def return_overpayment(*, invoice: Invoice, most: int, at: datetime, on: date) -> int:
    """Move what the balance took over of an invoice back to it, up to `most`; how much that is.

    For a caller that holds the tenant's lock. What it paid meanwhile is due again, the newest first. Raises
    CreditBalanceError where some of it was paid back to the tenant.
    """
    rows = CreditEntry.objects.filter(payment__invoice=invoice, kind=CreditKind.OVERPAID)
    amount = min(most, int(rows.aggregate(sum=Sum("amount"))["sum"] or 0))
    if amount > 0:
        _free_credit(invoice.tenant, invoice.currency, amount, at, on)
        _move_amount(invoice, amount, CreditKind.OVERPAID, at, on)
    return max(amount, 0)


@transaction.atomic
def record_payout(
    *, tenant: Tenant, currency: str, amount: Money, reference: str, by: str, at: datetime
) -> CreditEntry:
    """Record that the operator transferred money of the balance back; the same reference again, the same entry.

    Raises CreditBalanceError for nothing, for more than there is, and for a reference of another amount.
    """
    lock(tenant)
    memo = f"Paid back: {reference.strip()}"[:300]
    if not reference.strip():
        raise CreditBalanceError("pay-back-without-reference")
    existing = CreditEntry.objects.filter(
        tenant=tenant, currency=currency, kind=CreditKind.PAID_BACK, memo=memo
    ).first()
    if existing is not None:
        if existing.amount != -amount.minor:
            raise CreditBalanceError("reference-used", reference=reference)
        return existing
    there = get_balance(tenant, currency)
    if not 0 < amount.minor <= there:
        most = Money.from_minor(there, currency).text
        raise CreditBalanceError("beyond-credit-balance", amount=most, currency=currency)
    return _add_entry(tenant.pk, currency, -amount.minor, CreditKind.PAID_BACK, memo, by, at)


def balance_of_invoice() -> QuerySet[CreditEntry, Any]:
    """The balance of the outer query's invoice: of its tenant, in its currency, where it is above zero."""
    rows = CreditEntry.objects.filter(tenant=OuterRef("tenant"), currency=OuterRef("currency")).order_by()
    return rows.values("tenant").annotate(sum=Sum("amount")).filter(sum__gt=0)


def _filter_payable(invoices: InvoiceQuerySet, on: date) -> InvoiceQuerySet:
    """Those with something left, for which no money is on its way, and about which people decide nothing first."""
    flying = PaymentAttempt.objects.filter(UNDER_WAY, invoice=OuterRef("pk"))
    offered = CheckoutSession.objects.filter(attempt__invoice=OuterRef("pk"), state__in=OPEN_CHECKOUTS)
    disputed = PaymentDispute.objects.filter(attempt__invoice=OuterRef("pk"), state__in=UNDECIDED)
    unexplained_refunds = PaymentRefund.objects.filter(UNEXPLAINED, attempt__invoice=OuterRef("pk"))
    rows = invoices.unpaid().filter(~Exists(flying), ~Exists(offered))
    return rows.filter(~Exists(disputed), ~Exists(unexplained_refunds), ~Exists(pauses.filter_of_invoice(on)))


def _pay_invoice(invoice: Invoice, most: int, at: datetime, on: date) -> int:
    due = settlement.load_balance(invoice=invoice, on=on).due.minor
    amount = min(due, most)
    if amount > 0:
        _move_amount(invoice, amount, CreditKind.USED, at, on)
    return max(amount, 0)


def _take_back_payment(invoice: Invoice, most: int, at: datetime, on: date) -> int:
    """Take back what the balance paid of the invoice, up to `most`."""
    rows = CreditEntry.objects.filter(payment__invoice=invoice, kind__in=[CreditKind.USED, CreditKind.UNUSED])
    amount = min(most, -int(rows.aggregate(sum=Sum("amount"))["sum"] or 0))
    if amount > 0:
        _move_amount(invoice, -amount, CreditKind.UNUSED, at, on)
    return max(amount, 0)


def _move_amount(invoice: Invoice, amount: int, kind: CreditKind, at: datetime, on: date) -> None:
    before = invoice.payments.filter(reference__startswith=REFERENCE).count()
    payment = settlement.record_payment(
        invoice=invoice,
        amount=Money.from_minor(amount, invoice.currency),
        received_on=on,
        reference=REFERENCE if not before else f"{REFERENCE} ({before + 1})",
        recorded_by=REFERENCE,
    )
    memo = f"{kind.label}: {invoice.number}"
    _add_entry(invoice.tenant_id, invoice.currency, -amount, kind, memo, REFERENCE, at, payment.pk)


def _add_entry(
    tenant: int,
    currency: str,
    amount: int,
    kind: CreditKind,
    memo: str,
    by: str,
    at: datetime,
    payment: int | None = None,
) -> CreditEntry:
    return CreditEntry.objects.create(
        tenant_id=tenant,
        currency=currency,
        amount=amount,
        kind=kind,
        memo=memo[:300],
        by=by,
        at=at,
        payment_id=payment,
    )
