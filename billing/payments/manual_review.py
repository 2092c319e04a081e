"""What people decide of what could not be told by itself: who, when and why is kept."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from billing.models import AttemptState, EventState, GatewayEvent, PaymentAttempt, PaymentRefund
from billing.payments import payment_posting
from billing.payments.gateway_access import CollectionError


@transaction.atomic
def mark_unpaid(*, attempt: PaymentAttempt, reason: str) -> PaymentAttempt:
    """No money came by this attempt, and none will: the invoice can be paid again. A second call is refused.

    Raises CollectionError for an attempt that is not to be looked at, for one that the gateway has a charge of, and
    without a reason.
    """
    if not reason.strip():
        raise CollectionError("unpaid-without-reason")
    row = payment_posting.lock_attempt(pk=attempt.pk)
    if row is None or row.state != AttemptState.NEEDS_REVIEW:
        raise CollectionError("attempt-not-in-review", attempt=attempt)
    if row.external_id is not None:
        raise CollectionError("attempt-has-charge", charge=row.external_id)
    row.state, row.message = AttemptState.CANCELED, reason.strip()
    row.version += 1
    row.save()
    return row


@transaction.atomic
def retry_event(*, event: GatewayEvent) -> None:
    """Have the next round try what needs review, without waiting for its hour. A second call changes nothing.

    Raises CollectionError for an event that does not need review.
    """
    row = GatewayEvent.objects.select_for_update().get(pk=event.pk)
    if row.state != EventState.NEEDS_REVIEW:
        raise CollectionError("event-not-in-review", event=row)
    row.applied_at = None
    row.save(update_fields=["applied_at"])


@transaction.atomic
def settle_event(*, event: GatewayEvent, who: str, reason: str, moment: datetime) -> None:
    """Somebody looked at what needs review and did what is to be done: its tenant is charged again.

    The event keeps who and why beside what was wrong. A second call is refused, as for one that does not need review.
    """
    if not reason.strip():
        raise CollectionError("settled-without-reason")
    row = GatewayEvent.objects.select_for_update().get(pk=event.pk)
    if row.state != EventState.NEEDS_REVIEW:
        raise CollectionError("event-not-in-review", event=row)
    row.state, row.reason, row.applied_at = (
        EventState.SETTLED,
        f"{row.reason} {who}: {reason.strip()}",
        moment,
    )
    row.save()


@transaction.atomic
def keep_refund_owed(*, refund: PaymentRefund, who: str, reason: str) -> None:
    """Somebody says that what was given back at the gateway is owed as before: its invoice is charged again.

    A second call is refused, as for one that has a credit note.
    """
    if not reason.strip():
        raise CollectionError("open-balance-without-reason")
    row = PaymentRefund.objects.select_for_update().get(pk=refund.pk)
    if row.credit_note_id is not None or row.resolution:
        raise CollectionError("refund-resolved", refund=row)
    row.resolution = f"{who}: {reason.strip()}"
    row.save(update_fields=["resolution"])
