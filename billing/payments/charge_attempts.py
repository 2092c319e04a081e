"""Charging a saved means of payment: an attempt is committed, then sent, then its answer applied."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Exists

from billing.models import (
    IN_FLIGHT,
    OPEN_CHECKOUTS,
    UNDECIDED,
    UNDER_WAY,
    UNEXPLAINED,
    AttemptState,
    AutomaticTopUp,
    BillingAccount,
    CheckoutSession,
    DisputeState,
    DocumentKind,
    EventState,
    GatewayEvent,
    Invoice,
    InvoiceState,
    MethodState,
    PaymentAttempt,
    PaymentDispute,
    PaymentRefund,
    SavedMethod,
)
from billing.payments import customers, gateway_access, payment_posting, refunds, retries, saved_methods, sync
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import CallOutcome, Gateway, GatewayError
from billing.receivables import credit_balance, pauses, settlement
from billing.receivables.dunning_policies import Policies
from billing.rules import gateway_amounts
from billing.wallets import entries
from portal.core.tenants.models import Tenant

OUT_OF_BOUNDS: Final = frozenset({"amount_too_small", "amount_too_large"})
"""Of an account that settles in another currency only the gateway knows the bounds."""
BOUNDS_HOLD: Final = timedelta(days=1)
"""How long an amount that only the gateway knew to be too small, or too large, is not asked for again."""


class NotChargeableError(CollectionError):
    """Why an invoice is not charged now: returned to a run that goes on, raised where somebody waits for it."""


def charge_invoice(
    *, invoice: Invoice, gateway: Gateway, moment: datetime, on: date
) -> PaymentAttempt | NotChargeableError:
    """Charge what is due of an invoice to the tenant's preferred means of payment, off session.

    By two at once, or again after a kill, one attempt is made: a second call sends or follows the first.
    Raises GatewayError where nothing can be told; the attempt stands and is followed later.
    """
    attempt = in_flight_attempt(invoice)
    if attempt is None:
        customer = customers.get_customer(invoice.tenant, gateway=gateway, moment=moment)
        outcome = prepare_attempt(invoice=invoice, customer=customer, moment=moment, on=on)
        if isinstance(outcome, NotChargeableError):
            return outcome
        attempt = outcome
    follow_attempt(attempt=attempt, gateway=gateway, moment=moment)
    attempt.refresh_from_db()
    return attempt


def in_flight_attempt(invoice: Invoice) -> PaymentAttempt | None:
    """The attempt that was made for the invoice and has not ended."""
    return PaymentAttempt.objects.filter(invoice=invoice, state__in=IN_FLIGHT).first()


def is_under_way(invoice: Invoice, *, own_attempt: PaymentAttempt | None = None) -> bool:
    """Whether money may yet come for the invoice, by an attempt or by a page that was used."""
    attempts = PaymentAttempt.objects.filter(UNDER_WAY, invoice=invoice)
    return (attempts.exclude(pk=own_attempt.pk) if own_attempt else attempts).exists()


@transaction.atomic
def prepare_attempt(
    *, invoice: Invoice, customer: str, moment: datetime, on: date
) -> PaymentAttempt | NotChargeableError:
    """Commit an attempt over what is due, to be sent; or say why not. The invoice's row is locked meanwhile."""
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    method = SavedMethod.objects.filter(
        tenant=invoice.tenant, preferred=True, state=MethodState.USABLE
    ).first()
    reason = _hold_reason(invoice, method, moment)
    if reason is not None or method is None:
        return reason or NotChargeableError("no-method")
    due = settlement.load_balance(invoice=invoice, on=on).due.minor
    if isinstance(amounts := chargeable_amount(due, invoice.currency), NotChargeableError):
        return amounts
    amount, over = amounts
    attempt = PaymentAttempt(
        tenant=invoice.tenant,
        invoice=invoice,
        amount=due - over,
        currency=invoice.currency,
        method=method,
        created_at=moment,
    )
    attempt.params = charge_params(attempt, amount, customer, method, f"Invoice {invoice.number}")
    attempt.save(force_insert=True)
    return attempt


def charge_params(
    attempt: PaymentAttempt, amount: int, customer: str, method: SavedMethod, description: str
) -> dict[str, object]:
    """Of the call that charges a saved means of payment, off session; `amount` is the gateway's."""
    return {
        "amount": amount,
        "currency": attempt.currency.lower(),
        "customer": customer,
        "payment_method": method.external_id,
        "allowed_payment_method_types": [method.kind],
        "confirm": True,
        "off_session": True,
        "description": description,
        "metadata": charge_tags(attempt),
    }


def on_session_params(params: dict[str, object], method: SavedMethod, return_url: str) -> dict[str, object]:
    """The same while whoever pays is there: the bank may ask, and leads back. A debit was agreed to when saved."""
    if method.kind != "card":
        return params
    return {name: value for name, value in params.items() if name != "off_session"} | {
        "return_url": return_url
    }


def follow_attempt(*, attempt: PaymentAttempt, gateway: Gateway, moment: datetime) -> None:
    """Send the attempt, or find out what became of it; the same call, with the same key, however often.

    Raises GatewayError where that cannot be told yet.
    """
    PaymentAttempt.objects.filter(pk=attempt.pk).update(checked_at=moment)
    if attempt.external_id is not None:
        _cancel_untried(
            sync.read_charge(attempt.external_id, gateway=gateway, moment=moment), gateway, moment
        )
        return
    if not _may_send(attempt, moment):
        find_charge(attempt=attempt, gateway=gateway, moment=moment)
        return
    first = attempt.sent_at is None
    if first and not _mark_sent(attempt, moment):
        return
    try:
        gateway_charge = gateway.charge(attempt.params, key=gateway_access.idempotency_key("pi", attempt.pk))
    except GatewayError as error:
        _handle_error(attempt, error, moment, first=first)
        return
    _cancel_untried(sync.apply_charge(gateway_charge, moment=moment), gateway, moment)


def _cancel_untried(attempt: PaymentAttempt | None, gateway: Gateway, moment: datetime) -> None:
    """Give up a charge that the gateway made and never tried: nobody can confirm it any more."""
    if (
        attempt is None
        or attempt.external_id is None
        or CheckoutSession.objects.filter(attempt=attempt).exists()
    ):
        return
    if attempt.state == AttemptState.OFFERED:
        key = gateway_access.idempotency_key("pi-cancel", attempt.pk)
        sync.apply_charge(gateway.cancel_charge(attempt.external_id, key=key), moment=moment)


def find_charge(*, attempt: PaymentAttempt, gateway: Gateway, moment: datetime) -> None:
    """Find the charge of an attempt that must not be sent again, by listing: the gateway's search lags behind.

    Where there is none hours after a failure that was told, or of one that was never sent, it was not made; where
    nothing was ever told, people look.
    """
    since = int((attempt.created_at - gateway_access.CLOCKS_DIFFER).timestamp())
    for gateway_charge in gateway.charges(since=since, customer=attempt.params.get("customer", "")):
        if gateway_charge.tags.get("ct_attempt") == str(attempt.pk):
            sync.apply_charge(gateway_charge, moment=moment)
            return
    if attempt.sent_at is None:
        _cancel_unsent(attempt.pk)
    elif attempt.resend:
        message = "It was sent, never answered, and cannot be found there: see whether the money came."
        _end_attempt(attempt.pk, AttemptState.NEEDS_REVIEW, message=message)
    elif moment - attempt.sent_at >= refunds.LOOKS_AFTER_FAILURE:
        _end_attempt(attempt.pk, AttemptState.CANCELED, message="The gateway failed, and made nothing of it.")


def charge_tags(attempt: PaymentAttempt) -> dict[str, str]:
    """What the charge carries, so that it is known again without any row of ours."""
    if attempt.invoice is None:
        top_up = attempt.top_up
        if top_up is None:
            raise TypeError("an attempt is for an invoice or a top-up")
        crossing = {} if top_up.crossing is None else {"crossing": top_up.crossing}
        return gateway_access.object_tags(
            tenant=attempt.tenant.slug,
            kind="topup",
            attempt=attempt.pk,
            topup=top_up.pk,
            wallet=top_up.wallet_id,
            **crossing,
        )
    return gateway_access.object_tags(
        tenant=attempt.tenant.slug,
        kind="invoice",
        attempt=attempt.pk,
        invoice=attempt.invoice.pk,
        number=attempt.invoice.number,
    )


def chargeable_amount(due: int, currency: str) -> tuple[int, int] | NotChargeableError:
    """(The gateway's amount, what is left over of ours), or why nothing can be charged."""
    if due <= 0:
        return NotChargeableError("nothing-due")
    amount, over = gateway_amounts.to_stripe(due, currency)
    if amount < gateway_amounts.least(currency):
        return NotChargeableError("amount-below-least")
    if amount > gateway_amounts.MOST:
        return NotChargeableError("amount-above-most")
    return amount, over


def _hold_reason(
    invoice: Invoice,
    method: SavedMethod | None,
    moment: datetime,
    *,
    own_attempt: PaymentAttempt | None = None,
) -> NotChargeableError | None:
    """Why it is not charged, asked before an attempt is made and again before it is sent."""
    if (why := refusal_reason(invoice, method, own_attempt=own_attempt)) is not None:
        return why
    by_itself = own_attempt is None or not own_attempt.requested_by
    return _blocking_reason(invoice, moment) if by_itself else None


def refusal_reason(
    invoice: Invoice, method: SavedMethod | None, *, own_attempt: PaymentAttempt | None = None
) -> NotChargeableError | None:
    """Why nobody can have it charged to that means of payment now."""
    if invoice.state != InvoiceState.ISSUED or invoice.kind == DocumentKind.CREDIT_NOTE:
        return NotChargeableError("not-payable", invoice=invoice)
    if method is None:
        return NotChargeableError("no-method")
    if method.state != MethodState.USABLE:
        return NotChargeableError("method-gone")
    if is_under_way(invoice, own_attempt=own_attempt):
        return NotChargeableError("payment-under-way")
    if CheckoutSession.objects.filter(attempt__invoice=invoice, state__in=OPEN_CHECKOUTS).exists():
        return NotChargeableError("page-is-open")
    if PaymentDispute.objects.filter(attempt__invoice=invoice, state__in=UNDECIDED).exists():
        return NotChargeableError("disputed")
    return None


def _blocking_reason(invoice: Invoice, moment: datetime) -> NotChargeableError | None:
    """Why people, or the credit balance, come first."""
    if BillingAccount.objects.filter(tenant=invoice.tenant_id, automatic=False).exists():
        return NotChargeableError("automatic-off")
    if Invoice.objects.filter(Exists(pauses.filter_of_invoice(moment.date())), pk=invoice.pk).exists():
        return NotChargeableError("paused")
    if _needs_review(invoice.tenant_id):
        return NotChargeableError("needs-review-first")
    if PaymentDispute.objects.filter(attempt__invoice=invoice, state=DisputeState.LOST).exists():
        return NotChargeableError("charged-back")
    if credit_balance.get_balance(invoice.tenant_id, invoice.currency) > 0:
        return NotChargeableError("credit-balance-first")
    if PaymentRefund.objects.filter(UNEXPLAINED, attempt__invoice=invoice).exists():
        return NotChargeableError("refund-without-credit-note")
    rest = retries.load_card_rests([invoice.tenant_id], Policies([invoice.tenant_id])).get(invoice.tenant_id)
    if rest is not None and rest.until > moment:
        return NotChargeableError("card-rests", day=f"{rest.until:%Y-%m-%d}")
    return None


def _needs_review(tenant: int) -> bool:
    """Whether money of the tenant may have moved that is booked nowhere: nothing is charged beside it."""
    slugs = Tenant.objects.filter(pk=tenant).values("slug")
    return GatewayEvent.objects.filter(state=EventState.NEEDS_REVIEW, tenant_slug__in=slugs).exists()


def _may_send(attempt: PaymentAttempt, moment: datetime) -> bool:
    """Whether its key does what it did before: one that is older may stem from before a backup was restored."""
    unanswered = attempt.state in {AttemptState.READY, AttemptState.UNKNOWN}
    return (
        unanswered
        and attempt.resend
        and gateway_access.is_key_fresh(attempt.sent_at or attempt.created_at, moment=moment)
    )


@transaction.atomic
def _mark_sent(attempt: PaymentAttempt, moment: datetime) -> bool:
    """Committed before the call: from now on money may have moved. False, and canceled, if it is not wanted any more.

    It may have waited since a worker died, and a transfer may have come meanwhile.
    """
    row = payment_posting.lock_attempt(pk=attempt.pk)
    if row is None or row.sent_at is not None or row.state != AttemptState.READY:
        return False
    if row.top_up is not None and not _may_charge_top_up(row):
        _end_attempt(
            row.pk, AttemptState.CANCELED, message="It was not wanted any more when it was to be sent."
        )
        return False
    if row.invoice is not None:
        reason = _hold_reason(row.invoice, row.method, moment, own_attempt=row)
        due = settlement.load_balance(invoice=row.invoice, on=moment.date()).due.minor
        amounts = chargeable_amount(due, row.currency)
        if reason is not None or isinstance(amounts, NotChargeableError) or due - amounts[1] != row.amount:
            _end_attempt(
                row.pk, AttemptState.CANCELED, message="It was not wanted any more when it was to be sent."
            )
            return False
    PaymentAttempt.objects.filter(pk=row.pk).update(sent_at=moment, state=AttemptState.UNKNOWN)
    return True


def _may_charge_top_up(row: PaymentAttempt) -> bool:
    """Whether a top-up may be charged: its card stands, and an automatic one is neither turned off nor too late, nor
    does anything of its tenant wait for people.

    The wallet's row is locked: a transfer that fills it comes before or after, not beside.
    """
    if row.method is None or row.method.state != MethodState.USABLE or row.top_up is None:
        return False
    if row.top_up.crossing is None:
        return True
    if _needs_review(row.tenant_id):
        return False
    wallet = entries.locked([row.top_up.wallet_id])[row.top_up.wallet_id]
    return AutomaticTopUp.objects.filter(wallet=wallet, active=True, threshold__gt=wallet.balance).exists()


def _handle_error(attempt: PaymentAttempt, error: GatewayError, moment: datetime, *, first: bool) -> None:
    """What a call without an answer leaves of the attempt; raises the error where it is to be tried again."""
    if error.outcome is CallOutcome.REFUSED:
        _handle_refusal(attempt, error, moment)
        return
    unanswered = PaymentAttempt.objects.filter(pk=attempt.pk, external_id=None)
    if error.outcome is CallOutcome.UNREPEATABLE:
        unanswered.update(resend=False)
    if error.outcome is CallOutcome.LOCKED_OUT and first:
        unanswered.update(
            sent_at=None, state=AttemptState.READY
        )  # nothing was sent that could have done anything
    gateway_access.handle_auth_error(error, moment=moment)
    raise error


def _handle_refusal(attempt: PaymentAttempt, error: GatewayError, moment: datetime) -> None:
    """What is refused for itself has failed; anything else is ours to mend, and no payer is told of it."""
    if error.code == "resource_missing" and error.about in {"payment_method", "customer"}:
        if error.about == "customer":
            customers.forget_customer(attempt.params.get("customer", ""), moment=moment)
        elif attempt.method is not None:
            saved_methods.handle_removed(attempt.method.external_id, moment=moment)
        _end_attempt(
            attempt.pk, AttemptState.CANCELED, code=error.code, message="The card is not saved any more."
        )
    elif error.code in OUT_OF_BOUNDS:
        _end_attempt(attempt.pk, AttemptState.CANCELED, code=error.code, message=str(error))
    else:
        _end_attempt(attempt.pk, AttemptState.NEEDS_REVIEW, code=error.code, message=str(error))


def _cancel_unsent(attempt: UUID) -> None:
    """End it, unless somebody has sent it meanwhile: the next round makes another one."""
    PaymentAttempt.objects.filter(pk=attempt, external_id=None, sent_at=None).update(
        state=AttemptState.CANCELED, message="It was never sent."
    )


def _end_attempt(attempt: UUID, state: AttemptState, *, code: str = "", message: str) -> None:
    """End an attempt of which the gateway has no charge."""
    PaymentAttempt.objects.filter(pk=attempt, external_id=None).exclude(state=AttemptState.SUCCEEDED).update(
        state=state, code=code, message=message
    )
