"""Paying by card: saved cards, paying an invoice on a hosted page, and coming back from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from billing.emails import contacts
from billing.models import (
    AttemptState,
    BillingAccount,
    CheckoutSession,
    CheckoutState,
    DocumentKind,
    Invoice,
    InvoiceState,
    MethodState,
    Payment,
    PaymentAttempt,
    SavedMethod,
    SignUp,
    SignUpState,
)
from billing.payments import checkout_sessions, customers, gateway_access, payment_posting, saved_methods
from billing.payments.gateway_access import CollectionError, UnmatchedObjectError
from billing.payments.gateways.base import GatewayError
from billing.receivables import credit_balance
from billing.rules.money import Money
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant, User
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_act, tenant_page, tenant_return
from portal.web.cards import label_of, means_of

SHOWN = 12
LATER = gettext_lazy(
    "The payment service cannot be reached now; nothing was charged. Please try again in a few minutes."
)
CONFIRMING = gettext_lazy("Thank you. Your payment is being confirmed, which usually takes under a minute.")
TRANSFER = gettext_noop("Bank transfer")
_REFUND, _DISPUTE = (
    (gettext_noop("Given back"), gettext_noop("Came back again")),
    (gettext_noop("Charged back"), gettext_noop("Dispute won")),
)
WENT = {"re": _REFUND, "pyr": _REFUND, "dp": _DISPUTE, "du": _DISPUTE}
"""By what its name at the gateway begins with: said of money that went back, and of what took that back."""


@tenant_page(Action.READ_INVOICES, area="payment")
def payment(request: TenantRequest) -> HttpResponse:
    tenant = request.tenant
    account = BillingAccount.objects.filter(tenant=tenant).first()
    saved = SavedMethod.objects.filter(tenant=tenant).exclude(state=MethodState.GONE)
    tried = PaymentAttempt.objects.filter(tenant=tenant).exclude(state=AttemptState.OFFERED, page_used=False)
    page = {
        "methods": saved.order_by("-preferred", "-added_at"),
        "attempts": tried.select_related("invoice", "method").order_by("-created_at")[:SHOWN],
        "automatic": account is None or account.automatic,
        "ready": gateway_access.is_configured(),
        "sandbox": gateway_access.is_sandbox(),
        "may_pay": Action.PAY in request.may,
        "credit": [
            Money.from_minor(amount, currency)
            for (_, currency), amount in credit_balance.list_balances([tenant.pk]).items()
        ],
        "refused": refused_addresses(tenant),
    }
    return answer(request, request.frame, page, whole="tenant/payment.html")


@tenant_act(Action.PAY)
def pay(request: HttpRequest, tenant: Tenant, number: str) -> HttpResponse:
    """To the hosted page on which the invoice is paid."""
    invoice = Invoice.objects.filter(tenant=tenant, number=number, state=InvoiceState.ISSUED).first()
    if invoice is None or invoice.kind == DocumentKind.CREDIT_NOTE:
        raise Http404("no such invoice to pay")
    here = reverse("invoice", args=[tenant.slug, number])

    def opened() -> CheckoutSession:
        return checkout_sessions.open_payment_page(
            invoice=invoice,
            gateway=gateway_access.get_gateway(),
            back=back_of(request, tenant),
            who=person_of(request),
            moment=datetime.now(UTC),
        )

    return onwards(request, opened, here)


@tenant_act(Action.PAY, proof=True)
def add_card(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """To the hosted page on which a card is saved."""
    here = reverse("payment", args=[tenant.slug])

    def opened() -> CheckoutSession:
        return checkout_sessions.open_card_page(
            tenant=tenant,
            gateway=gateway_access.get_gateway(),
            back=back_of(request, tenant),
            who=person_of(request),
            moment=datetime.now(UTC),
        )

    return onwards(request, opened, here)


@tenant_act(Action.PAY, proof=True)
def set_automatic(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    account = customers.set_automatic(tenant=tenant, automatic=request.POST.get("automatic") == "yes")
    if account.automatic:
        messages.success(request, _("Invoices are charged on the day they are due."))
    else:
        messages.success(request, _("Invoices wait until somebody pays them."))
    return redirect("payment", tenant.slug)


def refused_addresses(tenant: Tenant) -> tuple[str, ...]:
    """A sentence for each address of the tenant that is refused."""
    refused = contacts.list_refused_addresses(tenant)
    return tuple(
        _("E-mails to {address} are refused: {reason}.").format(address=to, reason=why.rstrip("."))
        for to, why in refused.items()
    )


@tenant_act(Action.PAY, proof=True)
def change_method(request: HttpRequest, tenant: Tenant, method: int) -> HttpResponse:
    saved_method = (
        SavedMethod.objects.filter(tenant=tenant, pk=method).exclude(state=MethodState.GONE).first()
    )
    if saved_method is None:
        raise Http404("no such card")
    if request.POST.get("act") == "prefer":
        try:
            saved_methods.make_preferred(method=saved_method)
        except CollectionError as refusal:
            messages.error(request, sentence(refusal))
        else:
            text = _("{card} is charged from now on.")
            messages.success(request, text.format(card=label_of(saved_method)))
    elif request.POST.get("act") == "remove":
        try:
            saved_methods.remove_method(method=saved_method, gateway=gateway_access.get_gateway())
        except (GatewayError, CollectionError):
            messages.error(request, _("The payment service cannot be reached now; the card is still saved."))
        else:
            messages.success(request, _("{card} is removed.").format(card=label_of(saved_method)))
    return redirect("payment", tenant.slug)


@tenant_return(Action.PAY)
def back(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Back from a hosted page, or a bank's. What happened there is asked of the gateway, never of the address."""
    name = request.GET.get("session") or request.GET.get("payment_intent", "")
    checkout = CheckoutSession.objects.filter(tenant=tenant, external_id=name.replace("\0", "")).first()
    if checkout is None:
        raise Http404("no such page of this tenant")
    try:
        looked = checkout_sessions.handle_return(
            checkout=checkout, gateway=gateway_access.get_gateway(), moment=datetime.now(UTC)
        )
    except (
        GatewayError,
        CollectionError,
        UnmatchedObjectError,
    ):  # what belongs to nothing the next run sets aside for review
        looked = False
    if not looked:
        messages.info(request, CONFIRMING)
    elif text := _outcome(checkout):
        messages.success(request, text)
    if SignUp.objects.filter(tenant=tenant, state=SignUpState.CARD).exists():
        return redirect("sign_up")
    return behind_page(tenant, checkout)


def _outcome(checkout: CheckoutSession) -> str:
    """What was paid or saved on a page that was just read; "" where nothing was, and its own page says why."""
    checkout = CheckoutSession.objects.select_related("attempt__method", "attempt__top_up").get(
        pk=checkout.pk
    )
    attempt = checkout.attempt
    if attempt is None:
        card = SavedMethod.objects.filter(tenant=checkout.tenant, state=MethodState.USABLE).order_by(
            "-added_at"
        )
        saved = card.first() if checkout.state == CheckoutState.COMPLETE else None
        return _("{card} is saved.").format(card=label_of(saved)) if saved else ""
    if attempt.state != AttemptState.SUCCEEDED:
        return ""
    amount = say.minor(attempt.amount, attempt.currency)
    if attempt.top_up:
        return _("{amount} was credited.").format(amount=amount)
    return _("{amount} paid with {means}. Thank you.").format(amount=amount, means=means_of(attempt))


@tenant_return(Action.PAY)
def stopped(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Back from a hosted page that was left unpaid: it is closed, so that it is not in the way of what comes next."""
    checkout = page_of(tenant, request.GET.get("page", ""))
    if checkout is None:
        raise Http404("no such page of this tenant")
    with suppress(GatewayError, CollectionError, UnmatchedObjectError):  # else a round closes it
        checkout_sessions.close_session(
            checkout=checkout, gateway=gateway_access.get_gateway(), moment=datetime.now(UTC)
        )
    return behind_page(tenant, checkout)


def page_of(tenant: Tenant, text: str) -> CheckoutSession | None:
    """The hosted page of this id, if it is one of the tenant."""
    try:
        row = UUID(text)
    except ValueError:
        return None
    return CheckoutSession.objects.filter(tenant=tenant, pk=row).first()


def behind_page(tenant: Tenant, checkout: CheckoutSession) -> HttpResponse:
    """To what the page was opened for."""
    attempt = checkout.attempt
    if attempt is not None and attempt.top_up is not None:
        return redirect("wallet", tenant.slug, attempt.top_up.wallet_id)
    if attempt is None or attempt.invoice is None:
        return redirect("payment", tenant.slug)
    return redirect("invoice", tenant.slug, attempt.invoice.number)


def onwards(request: HttpRequest, opened: Callable[[], CheckoutSession], here: str) -> HttpResponse:
    try:
        checkout = opened()
    except CollectionError as error:
        messages.error(request, sentence(error))
    except (GatewayError, UnmatchedObjectError):
        messages.error(request, LATER)
    else:
        if checkout.url:
            return HttpResponseRedirect(checkout.url, status=303)
        messages.error(request, LATER)
    return redirect(here)


def back_of(request: HttpRequest, tenant: Tenant) -> checkout_sessions.ReturnUrls:
    return checkout_sessions.ReturnUrls(
        completed=request.build_absolute_uri(reverse("payment_back", args=[tenant.slug])),
        canceled=request.build_absolute_uri(reverse("payment_stopped", args=[tenant.slug])),
    )


def person_of(request: HttpRequest) -> str:
    return cast("User", request.user).email


def moved_by(invoice: Invoice, payments: Iterable[Payment]) -> dict[int, tuple[str, str]]:
    """By payment how its money came or went, and the reference of a transfer. A query where the gateway moved some."""
    rows = list(payments)
    if not any(payment.recorded_by == payment_posting.BY for payment in rows):
        return {payment.pk: _moved(payment, {}) for payment in rows}
    charged = PaymentAttempt.objects.filter(invoice=invoice, external_id__isnull=False)
    means = {attempt.external_id: means_of(attempt) for attempt in charged.select_related("method")}
    return {payment.pk: _moved(payment, means) for payment in rows}


def _moved(payment: Payment, means: Mapping[str | None, str]) -> tuple[str, str]:
    """What the gateway calls a movement tells whoever pays nothing."""
    if payment.recorded_by == credit_balance.REFERENCE:
        return _("From credit") if payment.amount > 0 else _("Back to credit"), ""
    if payment.recorded_by != payment_posting.BY:
        return _(TRANSFER), payment.reference
    if payment.reference in means:
        return means[payment.reference], ""
    kind = payment.reference.partition("_")[0]
    if kind not in WENT:
        return _(TRANSFER), payment.reference
    back, again = WENT[kind]
    return _(back if payment.amount < 0 else again), ""
