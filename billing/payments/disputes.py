"""Payments that their payer took up with the bank: collection rests, and a lost one is owed again.

The credit of a top-up goes at once, and comes back if the dispute is won. An inquiry takes nothing: collection rests,
and the payment can still be given back.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction

from billing.models import AttemptState, DisputeState, PaymentAttempt, PaymentDispute
from billing.payments import gateway_access, payment_posting
from billing.payments.gateways.base import Dispute
from billing.rules import gateway_amounts

_RANK = {DisputeState.INQUIRY: 0, DisputeState.OPEN: 1, DisputeState.WON: 2, DisputeState.LOST: 2}


@transaction.atomic
def apply_dispute(gateway_dispute: Dispute, *, moment: datetime) -> PaymentDispute | None:
    """Take over how a dispute stands; None for one of a charge that is not ours. Any number of times.

    Raises UnmatchedObjectError for one in another currency than its payment.
    """
    attempt = payment_posting.lock_attempt(external_id=gateway_dispute.charge)
    if attempt is None:
        return None
    if gateway_dispute.currency != attempt.currency:
        raise gateway_access.UnmatchedObjectError(
            "unmatched-currency",
            tenant=attempt.tenant.slug,
            thing="Dispute",
            id=gateway_dispute.id,
            currency=gateway_dispute.currency,
            other=attempt.currency,
        )
    state = DisputeState(gateway_dispute.state.value)
    row, _ = PaymentDispute.objects.select_for_update().get_or_create(
        external_id=gateway_dispute.id,
        defaults={
            "tenant_id": attempt.tenant_id,
            "attempt": attempt,
            "amount": gateway_amounts.from_stripe(gateway_dispute.amount, gateway_dispute.currency),
            "state": state,
            "reason": gateway_dispute.reason,
            "fee": gateway_dispute.fee,
            "opened_at": datetime.fromtimestamp(gateway_dispute.created, UTC),
        },
    )
    if _RANK[state] < _RANK[DisputeState(row.state)]:
        return row
    row.state, row.fee = state, max(row.fee, gateway_dispute.fee)
    row.save()
    if attempt.state == AttemptState.SUCCEEDED:
        _book_if_paid(attempt, row, moment)
    return row


def book_earlier_disputes(attempt: PaymentAttempt, *, moment: datetime) -> None:
    """Book what became of disputes of a charge before the charge itself was booked; again, nothing more."""
    for row in attempt.disputes.all():
        _book_if_paid(attempt, row, moment)


def _book_if_paid(attempt: PaymentAttempt, row: PaymentDispute, moment: datetime) -> None:
    """Only beside the payment itself: what came by a charge that is to be looked at is no payment here."""
    if attempt.invoice_id is not None:
        _book_dispute(attempt, row, moment)
    elif row.state == DisputeState.INQUIRY:
        return
    elif row.state == DisputeState.WON:
        payment_posting.undo_credit(attempt, row.external_id, because="won", at=moment)
    else:  # while it is open too: the gateway has taken the money, and nobody is to spend it
        payment_posting.book_credit(attempt, -row.amount, cause=row.external_id, at=moment)


def _book_dispute(attempt: PaymentAttempt, row: PaymentDispute, moment: datetime) -> None:
    loss_cause = f"{row.external_id} lost"
    if row.state == DisputeState.LOST:
        payment_posting.book_payment(attempt, -row.amount, cause=loss_cause, at=moment)
    elif row.state == DisputeState.WON and payment_posting.is_booked(loss_cause):
        payment_posting.book_payment(attempt, row.amount, cause=f"{row.external_id} won", at=moment)
