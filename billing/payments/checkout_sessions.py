"""Hosted pages: paying one invoice, and saving a card. At most one page of an invoice is open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from django.db import transaction
from django.db.models import F, Q

from billing.models import (
    OPEN_CHECKOUTS,
    AttemptState,
    CheckoutSession,
    CheckoutState,
    DocumentKind,
    Invoice,
    InvoiceState,
    PaymentAttempt,
    SavedMethod,
)
from billing.payments import charge_attempts, customers, gateway_access, saved_methods, sync
from billing.payments.charge_attempts import NotChargeableError
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import CallOutcome, Gateway, GatewayError, Params, Session, SessionState
from billing.receivables import settlement
from portal.core.tenants.models import Tenant

LONG_ENOUGH: Final = timedelta(minutes=10)
"""A page that closes sooner is not given to anybody who wants to pay now."""
JUST_LOOKED: Final = timedelta(minutes=1)
"""How long the gateway is not asked again how a page stands, however often somebody wants to pay."""
MOST_RETURNS: Final = 20
"""Returns from a page that each ask the gateway; further ones ask it once in JUST_LOOKED."""
PAGE_LIVES: Final = timedelta(minutes=30)
"""How long a page stays open that nobody uses: while one is, its invoice is not charged by itself."""
MOST_NEW: Final = 60
"""New pages of a tenant within an hour."""


@dataclass(frozen=True, slots=True)
class ReturnUrls:
    """Addresses of ours: where a page leads when something was done on it, and when nothing was."""

    completed: str  # gains `?session=` and the page's id
    canceled: str  # gains `?page=` and the row of the page


def open_payment_page(
    *,
    invoice: Invoice,
    gateway: Gateway,
    back: ReturnUrls,
    who: str,
    moment: datetime,
    of_tenant: bool = True,
) -> CheckoutSession:
    """An open page on which what is due of the invoice can be paid: the one that is open for just that and leads back
    to the same address, whoever asked for it, or a new one.

    `of_tenant`: whoever pays there is of the tenant, and may use and save its cards. Raises CollectionError where
    nothing can be paid there, and after many new ones; GatewayError where no page can be had now.
    """
    open_checkout = _reuse_page(invoice, gateway, back, moment)
    if open_checkout is not None:
        return open_checkout
    refuse_too_many(invoice.tenant, moment)
    close_invoice_pages(invoice=invoice, gateway=gateway, moment=moment)
    customer = customers.get_customer(invoice.tenant, gateway=gateway, moment=moment) if of_tenant else ""
    checkout = _prepare_payment(invoice, customer, back, who, moment)
    return open_session(checkout, gateway, moment)


def open_card_page(
    *, tenant: Tenant, gateway: Gateway, back: ReturnUrls, who: str, moment: datetime
) -> CheckoutSession:
    """An open page on which the tenant saves a card; it becomes the preferred one once it is saved."""
    customers.refuse_archived(tenant)
    open_one = CheckoutSession.objects.filter(
        tenant=tenant,
        attempt=None,
        state=CheckoutState.OPEN,
        requested_by=who,
        expires_at__gt=moment,
        created_at__gt=moment + LONG_ENOUGH - PAGE_LIVES,
    ).first()
    if open_one is not None:
        return open_one
    refuse_too_many(tenant, moment)
    customer = customers.get_customer(tenant, gateway=gateway, moment=moment)
    checkout = CheckoutSession(tenant=tenant, created_at=moment, requested_by=who)
    tags = gateway_access.object_tags(tenant=tenant.slug, kind="card", checkout=checkout.pk)
    checkout.params = session_params(customer, back, tags) | {
        "mode": "setup",
        "allowed_payment_method_types": ["card"],
        "setup_intent_data": {"metadata": tags},
    }
    checkout.save(force_insert=True)
    return open_session(checkout, gateway, moment)


def _reuse_page(
    invoice: Invoice, gateway: Gateway, back: ReturnUrls, moment: datetime
) -> CheckoutSession | None:
    """The page that asks for what is due now, and will be open for a while; the gateway is asked now and then.

    One that leads back elsewhere is none: who pays by a link shares neither cards nor ways back with who signs in.
    """
    checkout = (
        CheckoutSession.objects.filter(
            attempt__invoice=invoice,
            state=CheckoutState.OPEN,
            expires_at__gt=moment + LONG_ENOUGH,
            created_at__gt=moment + LONG_ENOUGH - PAGE_LIVES,
        )
        .select_related("attempt__invoice", "tenant")
        .first()
    )
    if checkout is None or checkout.attempt is None:
        return None
    if checkout.params.get("success_url") != _success_url(back):
        return None
    due = settlement.load_balance(invoice=invoice, on=moment.date()).due.minor
    if not is_current(checkout.attempt, due=due):
        return None
    if checkout.attempt.page_used or (checkout.checked_at or checkout.created_at) <= moment - JUST_LOOKED:
        follow_session(checkout=checkout, gateway=gateway, moment=moment)
        checkout.refresh_from_db()
    return checkout if checkout.state == CheckoutState.OPEN else None


def is_current(attempt: PaymentAttempt, *, due: int) -> bool:
    """Whether the attempt of a page asks for what is due of its invoice now: a transfer may have come, or a credit."""
    amounts = charge_attempts.chargeable_amount(due, attempt.currency)
    return not isinstance(amounts, NotChargeableError) and due - amounts[1] == attempt.amount


def refuse_too_many(tenant: Tenant, moment: datetime) -> None:
    """A page is calls to the gateway and rows for ever: nobody is to use up what all tenants share.

    Raises CollectionError after many new ones within an hour.
    """
    new = CheckoutSession.objects.filter(tenant=tenant, created_at__gt=moment - timedelta(hours=1)).count()
    if new >= MOST_NEW:
        raise CollectionError("too-many-pages", count=new)


def close_invoice_pages(*, invoice: Invoice, gateway: Gateway, moment: datetime) -> None:
    """Close the invoice's open pages, so that nobody pays there any more. One that was used is applied instead."""
    for checkout in CheckoutSession.objects.filter(attempt__invoice=invoice, state__in=OPEN_CHECKOUTS):
        close_session(checkout=checkout, gateway=gateway, moment=moment)


def close_session(*, checkout: CheckoutSession, gateway: Gateway, moment: datetime) -> None:
    """Close a page that nobody uses, was left by its payer, or is in the way of a charge; one that was used is applied
    instead, and one that is closed stays so. Raises as `follow_session`.
    """
    if checkout.state not in OPEN_CHECKOUTS:
        return
    follow_session(checkout=checkout, gateway=gateway, moment=moment)
    checkout.refresh_from_db()
    if checkout.state == CheckoutState.OPEN and checkout.external_id is not None:
        try:
            _expire_session(checkout, checkout.external_id, gateway, moment)
        except GatewayError as error:
            if error.outcome is not CallOutcome.REFUSED:
                raise
            follow_session(
                checkout=checkout, gateway=gateway, moment=moment
            )  # it was used or closed meanwhile


def _expire_session(checkout: CheckoutSession, name: str, gateway: Gateway, moment: datetime) -> None:
    if checkout.confirms:
        ended = gateway.cancel_charge(
            name, key=gateway_access.idempotency_key("pi-cancel", checkout.attempt_id)
        )
        sync.apply_charge(ended, moment=moment)
    else:
        sync.apply_session(
            gateway.expire_session(name, key=gateway_access.idempotency_key("cs-expire", checkout.pk))
        )


def withdraw_pages(*, invoice: Invoice, moment: datetime) -> None:
    """Close the pages of an invoice that nobody is to pay any more; CollectionError where that cannot be done."""
    if not gateway_access.is_configured():
        return
    try:
        close_invoice_pages(invoice=invoice, gateway=gateway_access.get_gateway(), moment=moment)
    except (GatewayError, gateway_access.UnmatchedObjectError) as error:
        raise CollectionError("page-cannot-close", invoice=invoice, reason=error) from error


def handle_return(*, checkout: CheckoutSession, gateway: Gateway, moment: datetime) -> bool:
    """Find out what was done on the page that somebody comes back from; False where that cannot be asked now.

    Until the gateway has answered, its payment counts as under way, so that nobody pays a second time. A browser
    comes back as often as somebody reloads: after many returns the gateway is asked once a minute. Raises as
    `follow_session`.
    """
    paid = checkout.attempt is not None and checkout.attempt.state == AttemptState.SUCCEEDED
    if paid or checkout.state == CheckoutState.EXPIRED:
        return True
    few = Q(returns__lt=MOST_RETURNS) | Q(checked_at=None) | Q(checked_at__lte=moment - JUST_LOOKED)
    if not CheckoutSession.objects.filter(few, pk=checkout.pk).update(returns=F("returns") + 1):
        return False  # and nothing counts as under way that is not asked for
    if checkout.state in OPEN_CHECKOUTS:
        PaymentAttempt.objects.filter(checkout=checkout, state=AttemptState.OFFERED).update(page_used=True)
    follow_session(checkout=checkout, gateway=gateway, moment=moment)
    return True


def follow_session(*, checkout: CheckoutSession, gateway: Gateway, moment: datetime) -> None:
    """Find out how a page stands, and what was paid or saved there."""
    CheckoutSession.objects.filter(pk=checkout.pk).update(checked_at=moment)
    if checkout.external_id is None:
        _find_session(checkout, gateway, moment)
        return
    if checkout.confirms:
        sync.read_charge(checkout.external_id, gateway=gateway, moment=moment)
        return
    sync_session(session=gateway.find_session(checkout.external_id), gateway=gateway, moment=moment)


def sync_session(*, session: Session, gateway: Gateway, moment: datetime) -> CheckoutSession | None:
    """Take over how a page that was just read stands, and what was paid or saved there; None for one that is not ours.

    Any number of times. Its charge is read before it counts as used or closed: until what was paid is booked,
    nothing else is charged beside it.
    """
    if not sync.is_own_session(session):
        return None
    if session.charge:
        sync.read_charge(session.charge, gateway=gateway, moment=moment)
    checkout = sync.apply_session(session)
    if checkout is None:
        return None
    if session.charge and session.state is not SessionState.OPEN:
        sync.read_charge(session.charge, gateway=gateway, moment=moment)
    if session.method and session.state is SessionState.COMPLETE and checkout.attempt_id is None:
        gateway_method = gateway.find_method(session.method)
        if (
            saved_methods.save_method(tenant=checkout.tenant, method=gateway_method, moment=moment) is None
            and gateway_method.customer
        ):
            gateway.detach(gateway_method.id, key=gateway_access.idempotency_key("detach-left", checkout.pk))
    if session.method and session.state is SessionState.COMPLETE and checkout.attempt_id is not None:
        _save_typed_card(checkout, session.method, gateway, moment)
    return checkout


def _save_typed_card(checkout: CheckoutSession, method: str, gateway: Gateway, moment: datetime) -> None:
    """A card that was typed on the page and is to be kept, as its payer ticked there: the gateway has saved it."""
    if SavedMethod.objects.filter(external_id=method).exists():
        return
    gateway_method = gateway.find_method(method)
    if gateway_method.customer:
        saved_methods.save_method(tenant=checkout.tenant, method=gateway_method, moment=moment)


@transaction.atomic
def _prepare_payment(
    invoice: Invoice, customer: str, back: ReturnUrls, who: str, moment: datetime
) -> CheckoutSession:
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if invoice.state != InvoiceState.ISSUED or invoice.kind == DocumentKind.CREDIT_NOTE:
        raise CollectionError("not-payable", invoice=invoice)
    if charge_attempts.is_under_way(invoice):
        raise CollectionError("invoice-payment-under-way")
    if CheckoutSession.objects.filter(attempt__invoice=invoice, state__in=OPEN_CHECKOUTS).exists():
        raise CollectionError("invoice-page-is-open")
    due = settlement.load_balance(invoice=invoice, on=moment.date()).due.minor
    if isinstance(amounts := charge_attempts.chargeable_amount(due, invoice.currency), NotChargeableError):
        raise amounts
    amount, over = amounts
    attempt = PaymentAttempt(
        pk=uuid4(), tenant=invoice.tenant, invoice=invoice, amount=due - over, currency=invoice.currency,
        state=AttemptState.OFFERED, created_at=moment,
    )  # fmt: skip
    checkout = CheckoutSession(tenant=invoice.tenant, attempt=attempt, created_at=moment, requested_by=who)
    tags = charge_attempts.charge_tags(attempt)
    checkout.params = session_params(customer, back, tags | {"ct_checkout": str(checkout.pk)}) | {
        "mode": "payment",
        "allowed_payment_method_types": ["card", *(["sepa_debit"] if invoice.currency == "EUR" else [])],
        "client_reference_id": str(attempt.pk),
        "line_items": [
            {
                "quantity": 1,
                "price_data": {
                    "currency": invoice.currency.lower(),
                    "unit_amount": amount,
                    "product_data": {"name": f"Invoice {invoice.number}"},
                },
            }
        ],
        "payment_intent_data": {"description": f"Invoice {invoice.number}", "metadata": tags},
    }
    if customer:
        checkout.params["saved_payment_method_options"] = {"payment_method_save": "enabled"}
    attempt.save(force_insert=True)
    checkout.save(force_insert=True)
    return checkout


def session_params(customer: str, back: ReturnUrls, tags: dict[str, str]) -> Params:
    """What every page has: whose it is, where it leads back to, and by what it is known again.

    Without a `customer` it is nobody's: no card is offered or saved there.
    """
    return ({"customer": customer} if customer else {}) | {
        "success_url": _success_url(back),
        "cancel_url": f"{back.canceled}?page={tags['ct_checkout']}",
        "metadata": tags,
    }


def _success_url(back: ReturnUrls) -> str:
    return f"{back.completed}?session={{CHECKOUT_SESSION_ID}}"


def open_session(checkout: CheckoutSession, gateway: Gateway, moment: datetime) -> CheckoutSession:
    """Ask for the page of a row that is committed; by the same key, a second call gets the same page.

    Raises GatewayError. Where the gateway refused, the row is closed; else it may have opened and is looked up later.
    """
    CheckoutSession.objects.filter(pk=checkout.pk, state=CheckoutState.READY).update(
        state=CheckoutState.UNKNOWN
    )
    try:
        session = gateway.open_session(checkout.params, key=gateway_access.idempotency_key("cs", checkout.pk))
    except GatewayError as error:
        if error.outcome is CallOutcome.REFUSED:
            _cancel_unopened(checkout)
        gateway_access.handle_auth_error(error, moment=moment)
        raise
    sync.apply_session(session)
    checkout.refresh_from_db()
    return checkout


def _find_session(checkout: CheckoutSession, gateway: Gateway, moment: datetime) -> None:
    """A page whose opening brought no answer: the same call tells, while its key is known."""
    if gateway_access.is_key_fresh(checkout.created_at, moment=moment):
        try:
            open_session(checkout, gateway, moment)
        except GatewayError as error:
            if error.outcome is not CallOutcome.UNREPEATABLE:
                raise
        else:
            return
    since = int((checkout.created_at - gateway_access.CLOCKS_DIFFER).timestamp())
    for session in gateway.sessions(since=since, customer=checkout.params.get("customer", "")):
        if session.tags.get("ct_checkout") == str(checkout.pk):
            sync_session(session=gateway.find_session(session.id), gateway=gateway, moment=moment)
            return
    _cancel_unopened(checkout)


@transaction.atomic
def _cancel_unopened(checkout: CheckoutSession) -> None:
    """Unless somebody else has learned meanwhile that it was."""
    closed = CheckoutSession.objects.filter(pk=checkout.pk, external_id=None).update(
        state=CheckoutState.EXPIRED
    )
    if closed and checkout.attempt_id is not None:
        PaymentAttempt.objects.filter(pk=checkout.attempt_id, state=AttemptState.OFFERED).update(
            state=AttemptState.CANCELED
        )
