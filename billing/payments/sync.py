"""What the gateway says becomes ours: the one place, for answers, notifications, polling and reconciliation.

Each takes an object as it was just read, may be called any number of times, in any order and at
once, and moves states only forward.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import IntegrityError, transaction

from billing.models import (
    AttemptState,
    CheckoutSession,
    CheckoutState,
    InvoiceState,
    MethodState,
    PaymentAttempt,
)
from billing.payments import (
    declines,
    disputes,
    gateway_access,
    orphan_recovery,
    payment_posting,
    refunds,
    saved_methods,
)
from billing.payments.gateway_access import UnmatchedObjectError
from billing.payments.gateways.base import (
    CallOutcome,
    Charge,
    ChargeState,
    Gateway,
    GatewayError,
    Session,
    SessionState,
)
from billing.rules import gateway_amounts
from portal.core.events import events
from portal.core.events.models import EventType

_STATES = {
    ChargeState.OPEN: AttemptState.OFFERED,
    ChargeState.PROCESSING: AttemptState.PROCESSING,
    ChargeState.NEEDS_ACTION: AttemptState.NEEDS_ACTION,
    ChargeState.SUCCEEDED: AttemptState.SUCCEEDED,
    ChargeState.FAILED: AttemptState.FAILED,
    ChargeState.CANCELED: AttemptState.CANCELED,
}
_RANK = {
    AttemptState.READY: 0,
    AttemptState.OFFERED: 0,
    AttemptState.UNKNOWN: 1,
    AttemptState.PROCESSING: 2,
    AttemptState.NEEDS_ACTION: 2,
    AttemptState.NEEDS_REVIEW: 2,
    AttemptState.FAILED: 3,
    AttemptState.CANCELED: 3,
    AttemptState.SUCCEEDED: 4,
}
_CONFIRMATIONS = {
    ChargeState.SUCCEEDED: CheckoutState.COMPLETE,
    ChargeState.PROCESSING: CheckoutState.COMPLETE,
    ChargeState.FAILED: CheckoutState.EXPIRED,
    ChargeState.CANCELED: CheckoutState.EXPIRED,
}
"""What the bank's page of a charge is by what the charge is; open while it waits for its owner."""
_EVENTS = {
    AttemptState.SUCCEEDED: EventType.PAYMENT_SUCCEEDED,
    AttemptState.FAILED: EventType.PAYMENT_FAILED,
    AttemptState.NEEDS_ACTION: EventType.PAYMENT_NEEDS_ACTION,
}
READS = 3
ONE_IN_FLIGHT = "invoice_has_one_attempt_in_flight"  # of each invoice, as its constraint is called
REPEATABLE = frozenset({ChargeState.OPEN, ChargeState.FAILED, ChargeState.NEEDS_ACTION})


def read_charge(name: str, *, gateway: Gateway, moment: datetime) -> PaymentAttempt | None:
    """Read a charge and take over how it stands; read again where its row changed between reading and writing."""
    for _ in range(READS):
        seen = PaymentAttempt.objects.filter(external_id=name).values_list("version", flat=True).first()
        charge = gateway.find_charge(name)
        try:
            return apply_charge(charge, moment=moment, seen=seen)
        except _ChangedError:
            continue
    raise GatewayError(f"{name} changes all the time; the next round looks again.", CallOutcome.RETRYABLE)


def apply_charge(charge: Charge, *, moment: datetime, seen: int | None = None) -> PaymentAttempt | None:
    """Take over how a charge stands; None for one that is not ours. Books the payment when it has succeeded.

    A charge of ours without a row (a backup was restored) is adopted by its tags; UnmatchedObjectError where they name
    nothing here, or where another charge of its invoice is under way, after which there is room for it.
    `seen`: the version of its row when it was read; None where the charge was just made.
    """
    try:
        return _apply(charge, moment, seen)
    except IntegrityError as error:
        if getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) != ONE_IN_FLIGHT:
            raise
        raise UnmatchedObjectError(
            "unmatched-rival", tenant=charge.tags.get("ct_tenant", ""), charge=charge.id
        ) from error


@transaction.atomic
def _apply(charge: Charge, moment: datetime, seen: int | None) -> PaymentAttempt | None:
    if not gateway_access.is_ours(charge.tags):
        return None
    attempt = _attempt_of(charge)
    if attempt is None:
        return None
    if attempt.state == AttemptState.SUCCEEDED:
        return _with_fee(attempt, charge)
    if seen is not None and attempt.version != seen:
        raise _ChangedError
    state = _STATES[charge.state]
    checkout = CheckoutSession.objects.filter(attempt=attempt).first() or _confirmation(
        attempt, charge, moment
    )
    if checkout is not None and charge.state in REPEATABLE:
        state = _on_page(charge, checkout)
    if checkout is None and _RANK[state] < _RANK[AttemptState(attempt.state)]:
        return attempt
    if state is AttemptState.PROCESSING and _is_as_it_was(attempt, charge):
        return attempt
    if checkout is not None and checkout.confirms:
        attempt.page_used = False
        CheckoutSession.objects.filter(pk=checkout.pk).update(
            state=_CONFIRMATIONS.get(charge.state, CheckoutState.OPEN)
        )
    before = attempt.state
    _update_attempt(attempt, charge, state, moment)
    _record_event(attempt, before)
    if attempt.state == AttemptState.SUCCEEDED:
        payment_posting.book_charge(attempt)
        refunds.book_earlier_refunds(attempt, moment=moment)
        disputes.book_earlier_disputes(attempt, moment=moment)
    elif attempt.state == AttemptState.FAILED and attempt.method is not None and declines.is_hard(attempt):
        # Afterwards: it locks the tenant, which a close has before it has the invoice.
        card, tried = attempt.method.external_id, attempt.created_at
        transaction.on_commit(lambda: saved_methods.set_state(card, MethodState.REFUSED, tried=tried))
    return attempt


def _confirmation(attempt: PaymentAttempt, charge: Charge, moment: datetime) -> CheckoutSession | None:
    """The bank's page on which whoever had the saved card charged confirms that: as any page to pay on, it is open
    once, and closed when it was left or is in the way."""
    asks = charge.state is ChargeState.NEEDS_ACTION and charge.confirm_at
    if (
        not asks
        or not attempt.requested_by
        or attempt.state not in {AttemptState.READY, AttemptState.UNKNOWN}
    ):
        return None
    return CheckoutSession.objects.create(
        tenant=attempt.tenant,
        attempt=attempt,
        state=CheckoutState.OPEN,
        external_id=charge.id,
        url=charge.confirm_at,
        created_at=moment,
        requested_by=attempt.requested_by,
        confirms=True,
    )


def _update_attempt(attempt: PaymentAttempt, charge: Charge, state: AttemptState, moment: datetime) -> None:
    attempt.external_id = charge.id
    attempt.sent_at = attempt.sent_at or moment
    attempt.code, attempt.advice, attempt.message = charge.code, charge.advice, charge.message
    attempt.fee, attempt.fee_currency = charge.fee, charge.fee_currency
    attempt.paid_with = charge.paid_with or attempt.paid_with
    attempt.state = state
    attempt.version += 1
    if state is AttemptState.SUCCEEDED:
        attempt.settled_at = datetime.fromtimestamp(charge.settled, UTC) if charge.settled else moment
        attempt.code = attempt.advice = attempt.message = ""
    if not _is_for(charge, attempt) and _is_undone(charge):
        attempt.state = AttemptState.CANCELED
        attempt.message = f"It was over {charge.amount} {charge.currency} there, and none of it was kept."
    elif not _is_for(charge, attempt):
        attempt.state = AttemptState.NEEDS_REVIEW
        attempt.message = (
            f"It is over {charge.amount} {charge.currency} there, and not over what was asked for here."
        )
    elif (
        attempt.state == AttemptState.SUCCEEDED
        and attempt.invoice
        and attempt.invoice.state == InvoiceState.VOID
    ):
        attempt.message = "The invoice was void when this was paid: give it back."
    attempt.save()


def _record_event(attempt: PaymentAttempt, before: str) -> None:
    """What whoever waits for the money is told of, once it is so: by what it was to pay, which can be read."""
    if attempt.state == before or attempt.state not in _EVENTS:
        return
    kind, key = ("inv", attempt.invoice_id) if attempt.top_up is None else ("wal", attempt.top_up.wallet_id)
    what = _EVENTS[AttemptState(attempt.state)]
    events.record(what, kind=kind, key=key or 0, state=attempt.state, tenant=attempt.tenant_id)


def _with_fee(attempt: PaymentAttempt, charge: Charge) -> PaymentAttempt:
    """What has succeeded stays; its fee is often told only later."""
    if attempt.fee is None and charge.fee is not None and attempt.external_id == charge.id:
        attempt.fee, attempt.fee_currency = charge.fee, charge.fee_currency
        attempt.save(update_fields=["fee", "fee_currency"])
    return attempt


def is_own_session(session: Session) -> bool:
    """Whether a hosted page is ours, and has a row."""
    return (
        gateway_access.is_ours(session.tags)
        and CheckoutSession.objects.filter(pk=gateway_access.tagged_row_id(session.tags, "checkout")).exists()
    )


@transaction.atomic
def apply_session(session: Session) -> CheckoutSession | None:
    """Take over how a hosted page stands; None for one that is not ours."""
    if not gateway_access.is_ours(session.tags):
        return None
    checkout = (
        CheckoutSession.objects.select_for_update()
        .filter(pk=gateway_access.tagged_row_id(session.tags, "checkout"))
        .first()
    )
    if checkout is None:
        return None
    checkout.external_id = checkout.external_id or session.id
    checkout.url = session.url or checkout.url
    checkout.expires_at = datetime.fromtimestamp(session.expires, UTC)
    if checkout.state not in {CheckoutState.COMPLETE, CheckoutState.EXPIRED}:
        checkout.state = {
            SessionState.OPEN: CheckoutState.OPEN,
            SessionState.COMPLETE: CheckoutState.COMPLETE,
            SessionState.EXPIRED: CheckoutState.EXPIRED,
        }[session.state]
    checkout.save()
    offered = PaymentAttempt.objects.filter(checkout=checkout, state=AttemptState.OFFERED)
    if checkout.state == CheckoutState.EXPIRED:
        offered.update(state=AttemptState.CANCELED)
    else:
        used = checkout.state == CheckoutState.COMPLETE
        offered.exclude(page_used=used).update(page_used=used)
    return checkout


def _on_page(charge: Charge, checkout: CheckoutSession) -> AttemptState:
    """While the page is open, whoever has it open may try again there.

    Used, it may still wait for what its payer does elsewhere (a voucher is paid, a deposit confirmed): only the
    gateway says that it has failed or was given up. Closed unused, nobody can pay there any more.
    """
    if checkout.confirms:
        return AttemptState.FAILED if charge.state is ChargeState.FAILED else AttemptState.OFFERED
    if checkout.state == CheckoutState.EXPIRED:
        return AttemptState.FAILED if charge.state is ChargeState.FAILED else AttemptState.CANCELED
    if checkout.state == CheckoutState.COMPLETE:
        return AttemptState.FAILED if charge.state is ChargeState.FAILED else AttemptState.PROCESSING
    return AttemptState.OFFERED


def _is_for(charge: Charge, attempt: PaymentAttempt) -> bool:
    stripe_amount, _ = gateway_amounts.to_stripe(attempt.amount, attempt.currency)
    return (charge.amount, charge.currency) == (stripe_amount, attempt.currency)


def _is_as_it_was(attempt: PaymentAttempt, charge: Charge) -> bool:
    """A debit that is still under way is no news: it is read for days, and each change is kept in the history."""
    row_state = (attempt.state, attempt.external_id, attempt.code, attempt.advice, attempt.message)
    charge_state = (AttemptState.PROCESSING, charge.id, charge.code, charge.advice, charge.message)
    return row_state == charge_state and _is_for(charge, attempt)


def _is_undone(charge: Charge) -> bool:
    """Whether nothing came by it, or all of it was given back."""
    return charge.state is ChargeState.CANCELED or 0 < charge.received <= charge.refunded


def _attempt_of(charge: Charge) -> PaymentAttempt | None:
    """Its row, locked with its invoice; None for one that asks nobody for anything any more and has none."""
    existing = payment_posting.lock_attempt(external_id=charge.id)
    if existing is not None:
        return existing
    key = gateway_access.tagged_row_id(charge.tags, "attempt")
    attempt = payment_posting.lock_attempt(pk=key)
    if attempt is not None and attempt.external_id in (None, charge.id):
        return attempt
    if charge.state in {ChargeState.FAILED, ChargeState.CANCELED, ChargeState.OPEN}:
        return None
    slug = charge.tags.get("ct_tenant", "")
    if attempt is not None:
        raise UnmatchedObjectError(
            "unmatched-second", tenant=slug, charge=charge.id, other=attempt.external_id
        )
    return orphan_recovery.recover_attempt(charge, key)


class _ChangedError(Exception):
    """The row changed since its charge was read."""
