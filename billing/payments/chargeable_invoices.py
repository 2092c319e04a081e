"""Which invoices are to be charged now: due, not paid, not held, and not tried in vain a short time ago."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Exists, OuterRef, Q

from billing.models import (
    OPEN_CHECKOUTS,
    UNDER_WAY,
    UNEXPLAINED,
    AttemptState,
    CheckoutSession,
    DisputeState,
    EventState,
    GatewayEvent,
    Invoice,
    MethodState,
    PaymentAttempt,
    PaymentDispute,
    PaymentRefund,
    SavedMethod,
)
from billing.models.invoices import InvoiceQuerySet
from billing.payments import retries
from billing.payments.charge_attempts import BOUNDS_HOLD, OUT_OF_BOUNDS, NotChargeableError, chargeable_amount
from billing.receivables import credit_balance, pauses
from billing.receivables.dunning_policies import Policies

SLICE = 500
TYPING = timedelta(minutes=10)
"""So long whoever opened a page to pay on is left alone with it, although a charge of its invoice is due."""


@dataclass(frozen=True, slots=True)
class ChargeableInvoice:
    """An invoice that is to be charged, and the day it is where it was issued."""

    invoice: Invoice
    on: date


def list_chargeable(*, moment: datetime, limit: int) -> list[ChargeableInvoice]:
    """Longest due first, leaving out what waits for its next try, and what is too little or too much for a charge:
    however much of that there is, it keeps nobody from being charged. A query each for slices of candidates."""
    rows = _list_unpaid(moment).order_by("due_on", "pk").values_list("pk", "balance__left", "currency")
    invoice_ids = [
        pk
        for pk, left, currency in rows
        if not isinstance(chargeable_amount(left, currency), NotChargeableError)
    ]
    due_invoices: list[ChargeableInvoice] = []
    for first in range(0, len(invoice_ids), SLICE):
        if len(due_invoices) >= limit:
            break
        due_invoices += _filter_retries(invoice_ids[first : first + SLICE], moment)
    return due_invoices[:limit]


def _filter_retries(invoice_ids: list[int], moment: datetime) -> list[ChargeableInvoice]:
    refused = retries.load_refusals(invoice_ids)
    policies = Policies()
    candidates = Invoice.objects.filter(pk__in=invoice_ids).select_related("tenant").order_by("due_on", "pk")
    rests = retries.load_card_rests({invoice.tenant_id for invoice in candidates}, policies)
    due = []
    for invoice in candidates:
        if invoice.tenant_id in rests and rests[invoice.tenant_id].until > moment:
            continue
        today = moment.astimezone(ZoneInfo(invoice.timezone)).date()
        if invoice.due_on is None or invoice.due_on > today:
            continue
        days = policies.of(invoice.tenant_id, invoice.due_on).retries
        if _is_retry_due(refused.get(invoice.pk, []), days, moment):
            due.append(ChargeableInvoice(invoice, today))
    return due


def _is_retry_due(refused: Sequence[PaymentAttempt], days: Sequence[int], moment: datetime) -> bool:
    if not refused:
        return True
    again = retries.next_try(refused, days)
    return again is not None and again <= moment


def _list_unpaid(moment: datetime) -> InvoiceQuerySet:
    usable = SavedMethod.objects.filter(tenant=OuterRef("tenant"), preferred=True, state=MethodState.USABLE)
    flying = PaymentAttempt.objects.filter(UNDER_WAY, invoice=OuterRef("pk"))
    disputed = PaymentDispute.objects.filter(attempt__invoice=OuterRef("pk")).exclude(state=DisputeState.WON)
    refunds = PaymentRefund.objects.filter(UNEXPLAINED, attempt__invoice=OuterRef("pk"))
    open_pages = CheckoutSession.objects.filter(
        attempt__invoice=OuterRef("pk"), state__in=OPEN_CHECKOUTS, created_at__gt=moment - TYPING
    )  # an older one is closed before the charge
    refused = PaymentAttempt.objects.filter(
        invoice=OuterRef("pk"),
        state=AttemptState.CANCELED,
        code__in=OUT_OF_BOUNDS,
        created_at__gt=moment - BOUNDS_HOLD,
    )
    today = moment.date() + timedelta(days=1)  # somewhere it is tomorrow
    rows = (
        Invoice.objects.filter(due_on__lte=today)
        .unpaid()
        .filter(Exists(usable))
        .filter(~Exists(flying), ~Exists(disputed), ~Exists(refunds), ~Exists(open_pages), ~Exists(refused))
        .filter(Q(tenant__billing_account__isnull=True) | Q(tenant__billing_account__automatic=True))
        .filter(~Exists(credit_balance.balance_of_invoice()))
        .filter(~Exists(pauses.filter_of_invoice(moment.date())))
    )
    in_review = GatewayEvent.objects.filter(state=EventState.NEEDS_REVIEW).exclude(tenant_slug="")
    return rows.exclude(tenant__slug__in=in_review.values("tenant_slug"))
