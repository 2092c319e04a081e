"""Charging the saved card because somebody asks for it: one invoice, or all that are open, each by its own attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from django.db import transaction

from billing.models import (
    AttemptState,
    CheckoutSession,
    CheckoutState,
    Invoice,
    MethodState,
    PaymentAttempt,
    SavedMethod,
)
from billing.payments import charge_attempts, checkout_sessions, customers
from billing.payments.charge_attempts import NotChargeableError
from billing.payments.checkout_sessions import ReturnUrls
from billing.payments.gateway_access import CollectionError, UnmatchedObjectError
from billing.payments.gateways.base import Gateway, GatewayError
from billing.receivables import settlement
from billing.receivables.settlement import Settlement
from portal.core.tenants.models import Tenant

MOST_CHARGES: Final = 60
"""Charges that people of a tenant ask for within an hour: each may be one more try at somebody's card."""
AT_ONCE: Final = 12
"""Invoices that one click pays at most: whoever clicked waits for each."""
PATIENCE: Final = timedelta(seconds=20)
"""After so long no further charge is begun for a click."""
TO_BE_PAID: Final = (Settlement.DUE, Settlement.PAST_DUE)


@dataclass(slots=True)
class BulkPayment:
    """What one click came to: `stopped` is the attempt after which nothing more was charged, its message says why."""

    paid: list[PaymentAttempt] = field(default_factory=list)
    stopped: PaymentAttempt | None = None
    refusal: CollectionError | None = None  # why nothing was tried for the next invoice
    unanswered: Invoice | None = None  # the gateway did not answer: what was sent for it may be paid
    left: int = 0  # invoices


def pay_invoice(
    *,
    invoice: Invoice,
    key: UUID,
    gateway: Gateway,
    back: ReturnUrls,
    who: str,
    moment: datetime,
    most: int | None = None,
) -> PaymentAttempt:
    """Charge what is due of the invoice to the preferred card; under the same key the same attempt, sent once.

    `most`: what somebody agreed to, in minor units; where more is due by now, nothing is charged.

    Its bank may ask for a confirmation: then `confirmation_page` leads there. A page to pay on that is open is closed
    before. Raises CollectionError where nothing can be charged, GatewayError where the outcome is not known yet.
    """
    attempt = _find_attempt(key, invoice)
    if attempt is None:
        checkout_sessions.close_invoice_pages(invoice=invoice, gateway=gateway, moment=moment)
        customer = customers.get_customer(invoice.tenant, gateway=gateway, moment=moment)
        attempt = _prepare_attempt(invoice, key, customer, back, who, moment, most)
    if attempt.state in {AttemptState.READY, AttemptState.UNKNOWN}:
        charge_attempts.follow_attempt(attempt=attempt, gateway=gateway, moment=moment)
        attempt.refresh_from_db()
    return attempt


def pay_open_invoices(
    *,
    tenant: Tenant,
    key: UUID,
    gateway: Gateway,
    back: ReturnUrls,
    who: str,
    clock: Callable[[], datetime],
    most: Mapping[str, int] | None = None,
) -> BulkPayment:
    """Charge each open invoice to the preferred card, the longest due first, up to the first that is not paid by it.

    One attempt each, whose key derives from the click's, so that a form that is sent twice charges once. What a
    payment is under way for, is disputed, or cannot be charged by card is left out. `most`: by currency what somebody
    agreed to, in minor units. Raises CollectionError where nothing can be charged at all, or more is open by now.
    """
    began, done = clock(), BulkPayment()
    waiting = list_open_invoices(tenant, moment=began)
    if not waiting:
        raise CollectionError("no-open-invoice")
    if most is not None:
        _refuse_higher_total(waiting, most, began)
    done.left = len(waiting)
    for invoice in waiting[:AT_ONCE]:
        if clock() - began > PATIENCE:
            break
        try:
            attempt = pay_invoice(
                invoice=invoice,
                key=uuid5(key, str(invoice.pk)),
                gateway=gateway,
                back=back,
                who=who,
                moment=clock(),
            )
        except CollectionError as refusal:
            done.refusal = refusal
            break
        except (GatewayError, UnmatchedObjectError):
            done.unanswered = invoice
            break
        if attempt.state not in {AttemptState.SUCCEEDED, AttemptState.PROCESSING}:
            done.stopped = attempt
            break
        done.paid.append(attempt)
        done.left -= 1
    return done


def _refuse_higher_total(
    invoices: Sequence[Invoice],
    most: Mapping[str, int],
    moment: datetime,
) -> None:
    """An invoice that was issued since, or money that went back, is charged to nobody who has not seen it."""
    due: Counter[str] = Counter()
    for invoice in invoices:
        due[invoice.currency] += settlement.compute_balance(invoice=invoice, on=moment.date()).due.minor
    if any(amount > most.get(currency, 0) for currency, amount in due.items()):
        raise CollectionError("more-is-due")


def list_open_invoices(tenant: Tenant, *, moment: datetime) -> list[Invoice]:
    """What one click would pay, the longest due first. One query."""
    rows = Invoice.objects.filter(tenant=tenant, due_on__isnull=False).issued().with_balance()
    invoices: list[Invoice] = []
    for row in rows.select_related("tenant").order_by("due_on", "pk"):
        stand = settlement.compute_balance(invoice=row, on=moment.astimezone(ZoneInfo(row.timezone)).date())
        chargeable = charge_attempts.chargeable_amount(stand.due.minor, row.currency)
        if stand.settlement in TO_BE_PAID and not isinstance(chargeable, NotChargeableError):
            invoices.append(row)
    return invoices


def confirmation_page(*, attempt: PaymentAttempt) -> CheckoutSession | None:
    """The page of the bank on which the charge waits to be confirmed; None where none is open."""
    return CheckoutSession.objects.filter(attempt=attempt, confirms=True, state=CheckoutState.OPEN).first()


def _find_attempt(key: UUID, invoice: Invoice) -> PaymentAttempt | None:
    """The attempt of that key. CollectionError for one of another invoice."""
    existing = PaymentAttempt.objects.filter(pk=key).first()
    if existing is not None and existing.invoice_id != invoice.pk:
        raise CollectionError("form-of-another-invoice")
    return existing


@transaction.atomic
def _prepare_attempt(
    invoice: Invoice, key: UUID, customer: str, back: ReturnUrls, who: str, moment: datetime, most: int | None
) -> PaymentAttempt:
    """Commit the attempt, to be sent. The invoice's row is locked meanwhile."""
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    existing = _find_attempt(key, invoice)
    if existing is not None:
        return existing
    method = SavedMethod.objects.filter(
        tenant=invoice.tenant, preferred=True, state=MethodState.USABLE
    ).first()
    if method is None:
        raise CollectionError("no-card")
    if (why := charge_attempts.refusal_reason(invoice, method)) is not None:
        raise why
    _refuse_too_many(invoice.tenant, moment)
    due = settlement.load_balance(invoice=invoice, on=moment.date()).due.minor
    if most is not None and due > most:
        raise CollectionError("more-is-due")
    if isinstance(amounts := charge_attempts.chargeable_amount(due, invoice.currency), NotChargeableError):
        raise amounts
    amount, over = amounts
    attempt = PaymentAttempt(
        pk=key,
        tenant=invoice.tenant,
        invoice=invoice,
        amount=due - over,
        currency=invoice.currency,
        method=method,
        created_at=moment,
        requested_by=who,
    )
    params = charge_attempts.charge_params(attempt, amount, customer, method, f"Invoice {invoice.number}")
    attempt.params = charge_attempts.on_session_params(params, method, back.completed)
    attempt.save(force_insert=True)
    return attempt


def _refuse_too_many(tenant: Tenant, moment: datetime) -> None:
    recent_attempts = PaymentAttempt.objects.filter(tenant=tenant, created_at__gt=moment - timedelta(hours=1))
    if recent_attempts.exclude(requested_by="").count() >= MOST_CHARGES:
        raise CollectionError("too-many-charges", count=MOST_CHARGES)
