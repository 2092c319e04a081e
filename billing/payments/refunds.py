"""Giving money back to where it came from, below a credit note; and what is given back at the gateway by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import QuerySet, Sum

from billing.models import (
    EFFECTIVE_REFUNDS,
    REFUNDS_UNDER_WAY,
    UNEXPLAINED,
    AttemptState,
    DisputeState,
    DocumentKind,
    Invoice,
    InvoiceState,
    PaymentAttempt,
    PaymentRefund,
    RefundState,
)
from billing.payments import gateway_access, payment_posting
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import CallOutcome, Gateway, GatewayError, Refund
from billing.receivables import settlement
from billing.rules import gateway_amounts

LOOKS_AFTER_FAILURE: Final = timedelta(hours=3)
"""So long what the gateway failed over (a 5xx) is looked for before it counts as not made, a charge as a refund: what
it began may be listed late, and no money is moved a second time meanwhile."""


@transaction.atomic
def prepare_refunds(*, credit_note: Invoice, who: str, moment: datetime) -> list[PaymentRefund]:
    """Commit the refunds of what a credit note gives back of paid money, newest payment first; to be sent.

    Never more than was paid beyond what is owed, nor than is left of each payment. What the gateway cannot
    express in the currency is left for a transfer. Asked again, only what is still to be given back. Raises
    CollectionError where that is nothing.
    """
    if credit_note.kind != DocumentKind.CREDIT_NOTE or credit_note.original is None:
        raise CollectionError("no-credit-note", document=credit_note)
    if credit_note.state != InvoiceState.ISSUED:
        raise CollectionError("credit-note-not-issued", document=credit_note)
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=credit_note.original.pk)
    over = -settlement.load_balance(invoice=invoice, on=moment.date()).due.minor
    under_way = sum(
        PaymentRefund.objects.filter(attempt__invoice=invoice, state__in=REFUNDS_UNDER_WAY).values_list(
            "amount", flat=True
        )
    )
    refund_total = _refund_total(credit_note.refunds.all())
    amount_left = min(over - under_way, credit_note.prepaid - credit_note.total - refund_total)
    rows = []
    for attempt in _list_refundable(invoice):
        amount = max(min(amount_left, attempt.amount - _refund_total(attempt.refunds.all())), 0)
        stripe_amount, over = gateway_amounts.to_stripe(amount, attempt.currency)
        if stripe_amount > 0:
            rows.append(_make_refund(attempt, credit_note, amount - over, stripe_amount, who, moment))
            amount_left -= amount - over
    if not rows:
        raise CollectionError("nothing-to-give-back", document=credit_note)
    return rows


def follow_refund(*, refund: PaymentRefund, gateway: Gateway, moment: datetime) -> None:
    """Send a refund, or find out what became of it. Raises GatewayError where that cannot be told yet."""
    PaymentRefund.objects.filter(pk=refund.pk).update(checked_at=moment)
    if refund.external_id is not None:
        apply_refund(gateway.find_refund(refund.external_id), moment=moment)
        return
    fresh = gateway_access.is_key_fresh(refund.sent_at or refund.created_at, moment=moment)
    if not (fresh and refund.resend):
        if _find_and_apply(refund, gateway, moment):
            return
        if refund.sent_at is not None and moment - refund.sent_at < LOOKS_AFTER_FAILURE:
            return
        if refund.sent_at is not None:
            _end_refund(refund, RefundState.CANCELED, "The gateway knows nothing of it: ask for it again.")
            return
    PaymentRefund.objects.filter(pk=refund.pk, sent_at=None).update(sent_at=moment, state=RefundState.UNKNOWN)
    try:
        gateway_refund = gateway.refund(
            refund.params, key=gateway_access.idempotency_key("refund", refund.pk)
        )
    except GatewayError as error:
        if error.outcome is CallOutcome.REFUSED:
            _end_refund(refund, RefundState.FAILED, str(error))
            return
        if error.outcome is CallOutcome.UNREPEATABLE:
            PaymentRefund.objects.filter(pk=refund.pk).update(resend=False)
        gateway_access.handle_auth_error(error, moment=moment)
        raise
    apply_refund(gateway_refund, moment=moment)


@transaction.atomic
def apply_refund(gateway_refund: Refund, *, moment: datetime) -> PaymentRefund | None:
    """Take over how a refund stands; None for one of a charge that is not ours. Any number of times, in any order.

    One that was made at the gateway by hand becomes a row without a credit note, to be looked at while its invoice
    asks for money again.

    Raises UnmatchedObjectError for one whose amount, currency or metadata fit nothing here.
    """
    attempt = payment_posting.lock_attempt(external_id=gateway_refund.charge)
    if attempt is None:
        return None
    if gateway_refund.currency != attempt.currency:
        raise gateway_access.UnmatchedObjectError(
            "unmatched-currency",
            tenant=attempt.tenant.slug,
            thing="Refund",
            id=gateway_refund.id,
            currency=gateway_refund.currency,
            other=attempt.currency,
        )
    refund = _get_or_create(gateway_refund, attempt, _our_amount(gateway_refund, attempt))
    if refund.state == RefundState.FAILED or (
        refund.state == RefundState.SUCCEEDED and gateway_refund.state.value == RefundState.PENDING
    ):  # what was read earlier and comes later
        return refund
    refund.external_id = gateway_refund.id
    refund.state = RefundState(gateway_refund.state.value)
    refund.reason = gateway_refund.reason
    refund.sent_at = refund.sent_at or moment
    refund.save()
    if attempt.state == AttemptState.SUCCEEDED:
        _book_if_paid(attempt, refund, datetime.fromtimestamp(gateway_refund.created, UTC), moment)
    return refund


def book_earlier_refunds(attempt: PaymentAttempt, *, moment: datetime) -> None:
    """Book what was given back of a charge before the charge itself was booked; again, nothing more."""
    for refund in attempt.refunds.exclude(external_id=None):
        _book_if_paid(attempt, refund, refund.created_at, moment)


def list_unexplained() -> QuerySet[PaymentRefund]:
    """Those of them that people have to look at: something is left to be paid of their invoices."""
    return PaymentRefund.objects.filter(
        UNEXPLAINED,
        attempt__invoice__in=Invoice.objects.unpaid().values("pk"),
    )


def list_not_refunded() -> QuerySet[PaymentRefund]:
    """Refunds below a credit note that were not made, or failed, while what they were to give back is still here."""
    return PaymentRefund.objects.filter(
        credit_note__isnull=False,
        resolution="",
        state__in=(RefundState.FAILED, RefundState.CANCELED),
        attempt__invoice__in=Invoice.objects.overpaid().values("pk"),
    )


def assign_to_credit_note(note: Invoice, *, on: date) -> None:
    """Put what was given back at the gateway by hand below the credit note after which nothing is owed any more.

    One over less than that leaves it to people whether the rest stays owed. What does not fit below the note alone
    is said to be credited, so that the note can still give back the rest of itself. Again, nothing more.
    """
    if note.original is None:
        return
    due = settlement.load_balance(invoice=note.original, on=on).due.minor
    owed = due + note.prepaid - note.total  # before the note
    if due > 0 or owed <= 0:  # where nothing was owed, what went back was paid too much, or is not gone yet
        return
    room = min(owed, note.prepaid - note.total - _refund_total(note.refunds.all()))
    for row in PaymentRefund.objects.filter(UNEXPLAINED, attempt__invoice=note.original).order_by(
        "created_at"
    ):
        if row.amount <= room:
            row.credit_note, room = note, room - row.amount
        else:
            row.resolution = f"Credited by {note.number}, beside others."
        row.save(update_fields=["credit_note", "resolution"])


def _book_if_paid(
    attempt: PaymentAttempt, refund: PaymentRefund, returned_at: datetime, moment: datetime
) -> None:
    """Only beside the payment itself: what came by a charge that is to be looked at is no payment here."""
    if attempt.invoice_id is not None:
        _book_refund(attempt, refund, returned_at, moment)
    else:
        _book_credit(attempt, refund, returned_at, moment)


def _book_refund(
    attempt: PaymentAttempt, refund: PaymentRefund, returned_at: datetime, moment: datetime
) -> None:
    """The money left when it was given back, and is here again when that failed."""
    if refund.external_id is None:
        return
    if refund.state == RefundState.SUCCEEDED:
        payment_posting.book_payment(attempt, -refund.amount, cause=refund.external_id, at=returned_at)
    elif refund.state in {RefundState.FAILED, RefundState.CANCELED} and payment_posting.is_booked(
        refund.external_id
    ):
        payment_posting.book_payment(
            attempt, refund.amount, cause=f"{refund.external_id} {refund.state}", at=moment
        )


def _book_credit(
    attempt: PaymentAttempt, refund: PaymentRefund, returned_at: datetime, moment: datetime
) -> None:
    """Credit goes as soon as its money is on the way, so that it is not spent meanwhile."""
    if refund.external_id is None:
        return
    if refund.state in {RefundState.PENDING, RefundState.SUCCEEDED}:
        payment_posting.book_credit(attempt, -refund.amount, cause=refund.external_id, at=returned_at)
    elif refund.state in {RefundState.FAILED, RefundState.CANCELED}:
        payment_posting.undo_credit(attempt, refund.external_id, because=str(refund.state), at=moment)


def _our_amount(gateway_refund: Refund, attempt: PaymentAttempt) -> int:
    try:
        return gateway_amounts.from_stripe(gateway_refund.amount, gateway_refund.currency)
    except ValueError as error:
        raise gateway_access.UnmatchedObjectError(
            "unmatched-value", tenant=attempt.tenant.slug, thing="Refund", id=gateway_refund.id, reason=error
        ) from error


def _get_or_create(gateway_refund: Refund, attempt: PaymentAttempt, amount: int) -> PaymentRefund:
    rows = PaymentRefund.objects.select_for_update()
    existing = rows.filter(external_id=gateway_refund.id).first()
    if existing is None and gateway_access.is_ours(gateway_refund.tags):
        existing = rows.filter(
            pk=gateway_access.tagged_row_id(gateway_refund.tags, "refund"), external_id=None
        ).first()
    if existing is not None and existing.amount != amount:
        raise gateway_access.UnmatchedObjectError(
            "unmatched-amount",
            tenant=attempt.tenant.slug,
            thing="Refund",
            id=gateway_refund.id,
            amount=f"{gateway_refund.amount} {gateway_refund.currency}",
        )
    if existing is not None:
        return existing
    note = Invoice.objects.filter(
        number=gateway_refund.tags.get("ct_credit_note"), original=attempt.invoice_id
    ).first()
    return PaymentRefund(
        tenant=attempt.tenant,
        attempt=attempt,
        credit_note=note if gateway_access.is_ours(gateway_refund.tags) else None,
        amount=amount,
        created_at=datetime.fromtimestamp(gateway_refund.created, UTC),
        requested_by="made at the gateway",
    )


def _make_refund(
    attempt: PaymentAttempt, note: Invoice, amount: int, stripe_amount: int, who: str, moment: datetime
) -> PaymentRefund:
    """`stripe_amount`: the same amount in the gateway's units."""
    row = PaymentRefund(
        tenant=attempt.tenant,
        attempt=attempt,
        credit_note=note,
        amount=amount,
        created_at=moment,
        requested_by=who,
    )
    row.params = {
        "payment_intent": attempt.external_id,
        "amount": stripe_amount,
        "reason": "requested_by_customer",
        "metadata": gateway_access.object_tags(
            tenant=attempt.tenant.slug, credit_note=note.number, refund=row.pk
        ),
    }
    row.save(force_insert=True)
    return row


def _list_refundable(invoice: Invoice) -> list[PaymentAttempt]:
    """Payments of the invoice from which money can be given back, newest first, locked."""
    return list(
        PaymentAttempt.objects.select_for_update()
        .filter(invoice=invoice, state=AttemptState.SUCCEEDED)
        .exclude(disputes__state__in=[DisputeState.OPEN, DisputeState.LOST])
        .order_by("-settled_at")
    )


def _refund_total(refunds: QuerySet[PaymentRefund]) -> int:
    total = refunds.filter(state__in=EFFECTIVE_REFUNDS).aggregate(sum=Sum("amount"))["sum"]
    return int(total or 0)


def _find_and_apply(refund: PaymentRefund, gateway: Gateway, moment: datetime) -> bool:
    """Whether the gateway has it, by its tag; it is taken over then."""
    since = int((refund.created_at - gateway_access.CLOCKS_DIFFER).timestamp())
    for gateway_refund in gateway.refunds(since=since, charge=refund.attempt.external_id or ""):
        if gateway_refund.tags.get("ct_refund") == str(refund.pk):
            apply_refund(gateway_refund, moment=moment)
            return True
    return False


def _end_refund(refund: PaymentRefund, state: RefundState, reason: str) -> None:
    PaymentRefund.objects.filter(pk=refund.pk, external_id=None).update(state=state, reason=reason)
