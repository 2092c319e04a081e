"""Paying with the saved card by one click: an invoice, or all that are open; and on to the bank where it asks."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from billing.models import (
    AttemptState,
    CheckoutSession,
    CheckoutState,
    DocumentKind,
    Invoice,
    InvoiceState,
    PaymentAttempt,
)
from billing.payments import charge_attempts, gateway_access, on_demand, top_ups
from billing.payments.gateway_access import CollectionError, UnmatchedObjectError
from billing.payments.gateways.base import GatewayError
from billing.payments.on_demand import BulkPayment
from billing.rules.money import Money
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import tenant_act, tenant_return
from portal.web.cards import means_of
from portal.web.payment import CONFIRMING, LATER, back_of, behind_page, person_of

DIGITS = 19  # of an amount that can be kept


@tenant_act(Action.PAY)
def pay_saved(request: HttpRequest, tenant: Tenant, number: str) -> HttpResponse:
    """Charge what is due of the invoice to the saved card, as the page offered it."""
    invoice = _invoice(tenant, number)
    try:
        attempt = on_demand.pay_invoice(
            invoice=invoice,
            key=top_ups.parse_key(request.POST.get("key", "")),
            gateway=gateway_access.get_gateway(),
            back=back_of(request, tenant),
            who=person_of(request),
            moment=datetime.now(UTC),
            most=(_seen(request) or {}).get(invoice.currency),
        )
    except CollectionError as refusal:
        messages.error(request, sentence(refusal))
    except (GatewayError, UnmatchedObjectError):
        _say_unanswered(request, invoice)
    else:
        if on_demand.confirmation_page(attempt=attempt) is not None:
            return redirect("payment_confirm", tenant.slug, attempt.pk)
        _say(request, attempt)
    return redirect("invoice", tenant.slug, number)


@tenant_act(Action.PAY)
def pay_open(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Charge the open invoices to the saved card one by one, up to the first that is not paid by it."""
    try:
        done = on_demand.pay_open_invoices(
            tenant=tenant,
            key=top_ups.parse_key(request.POST.get("key", "")),
            gateway=gateway_access.get_gateway(),
            back=back_of(request, tenant),
            who=person_of(request),
            clock=lambda: datetime.now(UTC),
            most=_seen(request),
        )
    except CollectionError as refusal:
        messages.error(request, sentence(refusal))
        return redirect("invoices", tenant.slug)
    _say_open(request, done)
    if done.stopped is not None and on_demand.confirmation_page(attempt=done.stopped) is not None:
        return redirect("payment_confirm", tenant.slug, done.stopped.pk)
    return redirect("invoices", tenant.slug)


@tenant_return(Action.PAY)
def confirm(request: HttpRequest, tenant: Tenant, attempt: UUID) -> HttpResponse:
    """On to the bank's page. By a page of ours: a form may not lead to addresses that nobody knows before."""
    link = CheckoutSession.objects.filter(tenant=tenant, attempt=attempt, confirms=True).first()
    if link is None:
        raise Http404("no such page of this tenant")
    behind = behind_page(tenant, link)
    if link.state != CheckoutState.OPEN:
        return behind
    return render(request, "tenant/confirm.html", {"url": link.url, "back": behind["Location"]})


def _seen(request: HttpRequest) -> dict[str, int] | None:
    """By currency what the page said would be charged, in minor units; None where the form does not have it."""
    if "seen" not in request.POST:
        return None
    pairs = (text.partition("=") for text in request.POST["seen"].split())
    return {unit: int(minor) for unit, _, minor in pairs if minor.isdecimal() and len(minor) < DIGITS}


def _invoice(tenant: Tenant, number: str) -> Invoice:
    invoice = Invoice.objects.filter(
        tenant=tenant, number=number.replace("\0", ""), state=InvoiceState.ISSUED
    ).first()
    if invoice is None or invoice.kind == DocumentKind.CREDIT_NOTE:
        raise Http404("no such invoice to pay")
    return invoice


def _say(request: HttpRequest, attempt: PaymentAttempt) -> None:
    amount = say.minor(attempt.amount, attempt.currency)
    state = AttemptState(attempt.state)
    if state is AttemptState.SUCCEEDED:
        text = _("{amount} paid with {means}. Thank you.")
        messages.success(request, text.format(amount=amount, means=means_of(attempt)))
    elif state in {AttemptState.FAILED, AttemptState.CANCELED, AttemptState.NEEDS_ACTION}:
        message = _(attempt.message) or _("nothing was charged.")
        messages.error(
            request, _("{means} was refused: {message}").format(means=means_of(attempt), message=message)
        )
    else:
        messages.info(request, CONFIRMING)


def _say_unanswered(request: HttpRequest, invoice: Invoice) -> None:
    """What was sent may be paid; where nothing was, nothing is, and nobody is thanked."""
    if charge_attempts.is_under_way(invoice):
        messages.info(request, CONFIRMING)
    else:
        messages.error(request, f"{invoice}: {LATER}")


def _say_open(request: HttpRequest, done: BulkPayment) -> None:
    if done.paid:
        sums: dict[str, Money] = {}
        for attempt in done.paid:
            amount = Money.from_minor(attempt.amount, attempt.currency)
            sums[amount.currency] = sums.get(amount.currency, Money.zero(amount.currency)) + amount
        count, with_ = say.counted(len(done.paid), "invoice"), means_of(done.paid[0])
        text = _("{invoices} paid with {means}: {amount}.")
        messages.success(
            request, text.format(invoices=count, means=with_, amount=say.sums(list(sums.values())))
        )
    if done.stopped is not None and done.stopped.state == AttemptState.FAILED:
        stopped = done.stopped
        messages.error(
            request,
            _("{invoice}: {means} was refused: {message} Nothing more was tried.").format(
                invoice=stopped.invoice, means=means_of(stopped), message=_(stopped.message)
            ),
        )
    elif done.unanswered is not None:
        _say_unanswered(request, done.unanswered)
    elif done.refusal is not None:
        messages.error(request, sentence(done.refusal))
    elif done.stopped is not None:
        messages.error(request, _(done.stopped.message))
    elif done.left:
        text = _("{invoices} left: pay again to go on.")
        messages.info(request, text.format(invoices=say.counted(done.left, "invoice")))
