"""Hosted pages: paying one invoice, and saving a card. At most one page of an invoice is open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from django.db import transaction
from django.db.models import F, Q

from billing.models import (
    OPEN_LINKS,
    AttemptState,
    DocumentKind,
    Invoice,
    InvoiceState,
    LinkState,
    PayLink,
    PaymentAttempt,
    SavedMethod,
)
from billing.payments import attempts, customers, gateway_access, saved_methods, sync
from billing.payments.attempts import Held
from billing.payments.gateway_access import CollectingError
from billing.payments.gateways.base import Gateway, GatewayError, Happened, Params, Session, SessionState
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
class Back:
    """Addresses of ours: where a page leads when something was done on it, and when nothing was."""

    done: str  # gains `?session=` and the page's id
    stopped: str  # gains `?page=` and the row of the page


def pay_page(*, invoice: Invoice, gateway: Gateway, back: Back, who: str, moment: datetime) -> PayLink:
    """An open page on which what is due of the invoice can be paid: the one that is open for just that, whoever
    asked for it, or a new one.

    Raises CollectingError where nothing can be paid there, and after many new ones; GatewayError where no page can
    be had now.
    """
    open_link = _open_page(invoice, gateway, moment)
    if open_link is not None:
        return open_link
    refuse_many(invoice.tenant, moment)
    close_pages(invoice=invoice, gateway=gateway, moment=moment)
    customer = customers.customer_of(invoice.tenant, gateway=gateway, moment=moment)
    link = _prepare_payment(invoice, customer, back, who, moment)
    return opened(link, gateway, moment)


def card_page(*, tenant: Tenant, gateway: Gateway, back: Back, who: str, moment: datetime) -> PayLink:
    """An open page on which the tenant saves a card; it becomes the preferred one once it is saved."""
    customers.refuse_archived(tenant)
    open_one = PayLink.objects.filter(
        tenant=tenant,
        attempt=None,
        state=LinkState.OPEN,
        asked_by=who,
        expires_at__gt=moment,
        made_at__gt=moment + LONG_ENOUGH - PAGE_LIVES,
    ).first()
    if open_one is not None:
        return open_one
    refuse_many(tenant, moment)
    customer = customers.customer_of(tenant, gateway=gateway, moment=moment)
    link = PayLink(tenant=tenant, made_at=moment, asked_by=who)
    tags = gateway_access.tags(tenant=tenant.slug, kind="card", link=link.pk)
    link.params = page_of(customer, back, tags) | {
        "mode": "setup",
        "allowed_payment_method_types": ["card"],
        "setup_intent_data": {"metadata": tags},
    }
    link.save(force_insert=True)
    return opened(link, gateway, moment)


def _open_page(invoice: Invoice, gateway: Gateway, moment: datetime) -> PayLink | None:
    """The page that asks for what is due now, and will be open for a while; the gateway is asked now and then."""
    link = (
        PayLink.objects.filter(
            attempt__invoice=invoice,
            state=LinkState.OPEN,
            expires_at__gt=moment + LONG_ENOUGH,
            made_at__gt=moment + LONG_ENOUGH - PAGE_LIVES,
        )
        .select_related("attempt__invoice", "tenant")
        .first()
    )
    if link is None or link.attempt is None:
        return None
    due = settlement.balance(invoice=invoice, on=moment.date()).due.minor
    if not is_current(link.attempt, due=due):
        return None
    if link.attempt.page_used or (link.looked_at or link.made_at) <= moment - JUST_LOOKED:
        follow(link=link, gateway=gateway, moment=moment)
        link.refresh_from_db()
    return link if link.state == LinkState.OPEN else None


def is_current(attempt: PaymentAttempt, *, due: int) -> bool:
    """Whether the attempt of a page asks for what is due of its invoice now: a transfer may have come, or a credit."""
    amounts = attempts.chargeable(due, attempt.currency)
    return not isinstance(amounts, Held) and due - amounts[1] == attempt.amount


def refuse_many(tenant: Tenant, moment: datetime) -> None:
    """A page is calls to the gateway and rows for ever: nobody is to use up what all tenants share.

    Raises CollectingError after many new ones within an hour.
    """
    new = PayLink.objects.filter(tenant=tenant, made_at__gt=moment - timedelta(hours=1)).count()
    if new >= MOST_NEW:
        raise CollectingError(
            f"{new} pages to pay or to save a card on were opened within an hour: please try again later."
        )


def close_pages(*, invoice: Invoice, gateway: Gateway, moment: datetime) -> None:
    """Close the invoice's open pages, so that nobody pays there any more. One that was used is applied instead."""
    for link in PayLink.objects.filter(attempt__invoice=invoice, state__in=OPEN_LINKS):
        close(link=link, gateway=gateway, moment=moment)


def close(*, link: PayLink, gateway: Gateway, moment: datetime) -> None:
    """Close a page that nobody uses, was left by its payer, or is in the way of a charge; one that was used is applied
    instead, and one that is closed stays so. Raises as `follow`.
    """
    if link.state not in OPEN_LINKS:
        return
    follow(link=link, gateway=gateway, moment=moment)
    link.refresh_from_db()
    if link.state == LinkState.OPEN and link.external_id is not None:
        try:
            _end(link, link.external_id, gateway, moment)
        except GatewayError as error:
            if error.happened is not Happened.REFUSED:
                raise
            follow(link=link, gateway=gateway, moment=moment)  # it was used or closed meanwhile


def _end(link: PayLink, name: str, gateway: Gateway, moment: datetime) -> None:
    if link.confirms:
        ended = gateway.cancel_charge(name, key=gateway_access.key_for("pi-cancel", link.attempt_id))
        sync.apply_charge(ended, moment=moment)
    else:
        sync.apply_session(gateway.expire_session(name, key=gateway_access.key_for("cs-expire", link.pk)))


def withdraw(*, invoice: Invoice, moment: datetime) -> None:
    """Close the pages of an invoice that nobody is to pay any more; CollectingError where that cannot be done."""
    if not gateway_access.is_configured():
        return
    try:
        close_pages(invoice=invoice, gateway=gateway_access.gateway(), moment=moment)
    except (GatewayError, gateway_access.UnplacedError) as error:
        raise CollectingError(f"A page to pay {invoice} is open and cannot be closed now: {error}") from error


def come_back(*, link: PayLink, gateway: Gateway, moment: datetime) -> bool:
    """Find out what was done on the page that somebody comes back from; False where that cannot be asked now.

    Until the gateway has answered, its payment counts as under way, so that nobody pays a second time. A browser
    comes back as often as somebody reloads: after many returns the gateway is asked once a minute. Raises as `follow`.
    """
    paid = link.attempt is not None and link.attempt.state == AttemptState.SUCCEEDED
    if paid or link.state == LinkState.EXPIRED:
        return True
    few = Q(returns__lt=MOST_RETURNS) | Q(looked_at=None) | Q(looked_at__lte=moment - JUST_LOOKED)
    if not PayLink.objects.filter(few, pk=link.pk).update(returns=F("returns") + 1):
        return False  # and nothing counts as under way that is not asked for
    if link.state in OPEN_LINKS:
        PaymentAttempt.objects.filter(link=link, state=AttemptState.OFFERED).update(page_used=True)
    follow(link=link, gateway=gateway, moment=moment)
    return True


def follow(*, link: PayLink, gateway: Gateway, moment: datetime) -> None:
    """Find out how a page stands, and what was paid or saved there."""
    PayLink.objects.filter(pk=link.pk).update(looked_at=moment)
    if link.external_id is None:
        _find(link, gateway, moment)
        return
    if link.confirms:
        sync.read_charge(link.external_id, gateway=gateway, moment=moment)
        return
    take_over(session=gateway.find_session(link.external_id), gateway=gateway, moment=moment)


def take_over(*, session: Session, gateway: Gateway, moment: datetime) -> PayLink | None:
    """Take over how a page that was just read stands, and what was paid or saved there; None for one that is not ours.

    Any number of times. Its charge is read before it counts as used or closed: until what was paid is booked,
    nothing else is charged beside it.
    """
    if not sync.is_known(session):
        return None
    if session.charge:
        sync.read_charge(session.charge, gateway=gateway, moment=moment)
    link = sync.apply_session(session)
    if link is None:
        return None
    if session.charge and session.state is not SessionState.OPEN:
        sync.read_charge(session.charge, gateway=gateway, moment=moment)
    if session.method and session.state is SessionState.COMPLETE and link.attempt_id is None:
        gateway_method = gateway.find_method(session.method)
        if (
            saved_methods.keep(tenant=link.tenant, method=gateway_method, moment=moment) is None
            and gateway_method.customer
        ):
            gateway.detach(gateway_method.id, key=gateway_access.key_for("detach-left", link.pk))
    if session.method and session.state is SessionState.COMPLETE and link.attempt_id is not None:
        _keep_typed(link, session.method, gateway, moment)
    return link


def _keep_typed(link: PayLink, method: str, gateway: Gateway, moment: datetime) -> None:
    """A card that was typed on the page and is to be kept, as its payer ticked there: the gateway has saved it."""
    if SavedMethod.objects.filter(external_id=method).exists():
        return
    gateway_method = gateway.find_method(method)
    if gateway_method.customer:
        saved_methods.keep(tenant=link.tenant, method=gateway_method, moment=moment)


@transaction.atomic
def _prepare_payment(invoice: Invoice, customer: str, back: Back, who: str, moment: datetime) -> PayLink:
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if invoice.state != InvoiceState.ISSUED or invoice.kind == DocumentKind.CREDIT_NOTE:
        raise CollectingError(f"{invoice} cannot be paid.")
    if attempts.is_under_way(invoice):
        raise CollectingError("A payment of this invoice is under way: wait until it has settled.")
    if PayLink.objects.filter(attempt__invoice=invoice, state__in=OPEN_LINKS).exists():
        raise CollectingError("Somebody has just opened a page to pay this invoice: use that one.")
    due = settlement.balance(invoice=invoice, on=moment.date()).due.minor
    if isinstance(amounts := attempts.chargeable(due, invoice.currency), Held):
        raise CollectingError(amounts.why)
    amount, over = amounts
    attempt = PaymentAttempt(
        pk=uuid4(), tenant=invoice.tenant, invoice=invoice, amount=due - over, currency=invoice.currency,
        state=AttemptState.OFFERED, made_at=moment,
    )  # fmt: skip
    link = PayLink(tenant=invoice.tenant, attempt=attempt, made_at=moment, asked_by=who)
    tags = attempts.tags_of(attempt)
    link.params = page_of(customer, back, tags | {"ct_link": str(link.pk)}) | {
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
        "saved_payment_method_options": {"payment_method_save": "enabled"},
    }
    attempt.save(force_insert=True)
    link.save(force_insert=True)
    return link


def page_of(customer: str, back: Back, tags: dict[str, str]) -> Params:
    """What every page has: whose it is, where it leads back to, and by what it is known again."""
    return {
        "customer": customer,
        "success_url": f"{back.done}?session={{CHECKOUT_SESSION_ID}}",
        "cancel_url": f"{back.stopped}?page={tags['ct_link']}",
        "metadata": tags,
    }


def opened(link: PayLink, gateway: Gateway, moment: datetime) -> PayLink:
    """Ask for the page of a row that is committed; by the same key, a second call gets the same page.

    Raises GatewayError. Where the gateway refused, the row is closed; else it may have opened and is looked up later.
    """
    PayLink.objects.filter(pk=link.pk, state=LinkState.READY).update(state=LinkState.UNKNOWN)
    try:
        session = gateway.open_session(link.params, key=gateway_access.key_for("cs", link.pk))
    except GatewayError as error:
        if error.happened is Happened.REFUSED:
            _never_opened(link)
        gateway_access.heed(error, moment=moment)
        raise
    sync.apply_session(session)
    link.refresh_from_db()
    return link


def _find(link: PayLink, gateway: Gateway, moment: datetime) -> None:
    """A page whose opening brought no answer: the same call tells, while its key is known."""
    if gateway_access.is_fresh(link.made_at, moment=moment):
        try:
            opened(link, gateway, moment)
        except GatewayError as error:
            if error.happened is not Happened.STORED:
                raise
        else:
            return
    since = int((link.made_at - gateway_access.CLOCKS_DIFFER).timestamp())
    for session in gateway.sessions(since=since, customer=link.params["customer"]):
        if session.tags.get("ct_link") == str(link.pk):
            take_over(session=gateway.find_session(session.id), gateway=gateway, moment=moment)
            return
    _never_opened(link)


@transaction.atomic
def _never_opened(link: PayLink) -> None:
    """Unless somebody else has learned meanwhile that it was."""
    closed = PayLink.objects.filter(pk=link.pk, external_id=None).update(state=LinkState.EXPIRED)
    if closed and link.attempt_id is not None:
        PaymentAttempt.objects.filter(pk=link.attempt_id, state=AttemptState.OFFERED).update(
            state=AttemptState.CANCELED
        )
