"""Buying credit for a wallet: at once, by transfer, or by itself whenever it runs low."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.models import (
    AttemptState,
    AutomaticTopUp,
    MethodState,
    PaymentAttempt,
    SavedMethod,
    Seller,
    Wallet,
)
from billing.payments import automatic, gateway_access, on_demand, top_ups
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import GatewayError
from billing.rules.bank_details import bank_details
from billing.rules.money import TOKENS, Money
from billing.rules.references import WALLET
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from portal.sentences import sentence
from portal.web import form_input
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, tenant_act
from portal.web.invoice_document import BankTransfer, bank_transfer
from portal.web.payment import LATER, back_of, person_of

SHOWN = 6


@tenant_act(Action.PAY)
def top_up(request: HttpRequest, tenant: Tenant, wallet: int) -> HttpResponse:
    """Buy credit with the saved card, or on the hosted page."""
    row = _wallet(tenant, wallet)
    here = reverse("wallet", args=[tenant.slug, wallet])
    try:
        amount = _minor(request.POST.get("amount", ""), row.unit)
        key = top_ups.parse_key(request.POST.get("key", ""))
        now, who, gateway = datetime.now(UTC), person_of(request), gateway_access.get_gateway()
        if request.POST.get("by") == "card":
            back = back_of(request, tenant)
            attempt = top_ups.charge_top_up(
                wallet=row, amount=amount, key=key, gateway=gateway, back=back, who=who, moment=now
            )
            if on_demand.confirmation_page(attempt=attempt) is not None:
                return redirect("payment_confirm", tenant.slug, attempt.pk)
            _say(request, attempt)
            return redirect(here)
        back = back_of(request, tenant)
        link = top_ups.open_page(
            wallet=row, amount=amount, key=key, gateway=gateway, back=back, who=who, moment=now
        )
        if link.url:
            return HttpResponseRedirect(link.url, status=303)
        messages.error(request, LATER)
    except CollectionError as error:
        form_input.keep(request, "amount")
        messages.error(request, sentence(error))
    except (GatewayError, gateway_access.UnmatchedObjectError):
        messages.error(request, _("The payment service cannot be reached now; what comes of it shows below."))
    return redirect(here)


@tenant_act(Action.PAY, proof=True)
def set_automatic_top_up(request: HttpRequest, tenant: Tenant, wallet: int) -> HttpResponse:
    row = _wallet(tenant, wallet)
    now, who = datetime.now(UTC), person_of(request)
    try:
        if request.POST.get("act") == "off":
            automatic.turn_off(wallet=row, by=who, moment=now)
            messages.success(request, _("Automatic top-up is off."))
        else:
            below, amount, most = (
                _minor(request.POST.get(name, ""), row.unit, least=least)
                for name, least in (("below", 0), ("amount", 1), ("most", 1))
            )
            automatic.set_rule(
                wallet=row, active=True, below=below, amount=amount, most=most, by=who, moment=now
            )
            messages.success(request, _("From now on this wallet is topped up automatically."))
    except CollectionError as error:
        form_input.keep(request, "below", "amount", "most")
        messages.error(request, sentence(error))
    return redirect("wallet", tenant.slug, wallet)


def panel(request: TenantRequest, row: Wallet) -> dict[str, object] | None:
    """None for a wallet in tokens. Six queries. Cards, who bought and what a bank said are for who reads invoices."""
    if row.unit == TOKENS:
        return None
    card, tried = None, PaymentAttempt.objects.none()
    if Action.READ_INVOICES in request.may:
        card = SavedMethod.objects.filter(
            tenant=request.tenant, preferred=True, state=MethodState.USABLE
        ).first()
        tried = PaymentAttempt.objects.filter(top_up__wallet=row).select_related("top_up", "method")
    return {
        "key": str(uuid4()),  # under which the form buys once
        "amount": form_input.last(request, _form("wallet_top_up", row)).get("amount", ""),
        "card": card,
        "by_card": gateway_access.is_configured(),
        "may_pay": Action.PAY in request.may,
        "sandbox": gateway_access.is_sandbox(),
        "attempts": tried.order_by("-created_at")[:SHOWN],
        "automatic": _automatic(row, request),
        "by_itself": automatic.BY,
        "transfer": _transfer(request, row),
    }


def _form(name: str, row: Wallet) -> str:
    return reverse(name, args=[row.tenant.slug, row.pk])


def _automatic(row: Wallet, request: TenantRequest) -> dict[str, object]:
    """The rule, its amounts as they are typed, and why it does not go on."""
    rule = AutomaticTopUp.objects.filter(wallet=row).select_related("tenant", "wallet").first()
    fields = form_input.last(request, _form("wallet_automatic", row))
    amounts = {"below": rule.threshold, "amount": rule.amount, "most": rule.monthly_limit} if rule else {}
    stand = automatic.check_readiness(rule, moment=request.moment) if rule and rule.active else None
    return {
        "rule": rule if rule and rule.active else None,
        **{name: Money.from_minor(units, row.unit).text for name, units in amounts.items()},
        **fields,
        "trouble": _trouble(stand, request) if stand else "",
    }


def _trouble(stand: automatic.Readiness, request: TenantRequest) -> str:
    reason = stand.stopped or stand.full
    return (
        reason
        if Action.READ_INVOICES in request.may
        else _("It waits: people who may pay see the reason.")
        if reason
        else ""
    )


def _transfer(request: TenantRequest, row: Wallet) -> BankTransfer | None:
    """The account and the wallet's reference; how much is for the payer to say."""
    with acting_scope(request.tenant):  # in which the seller can be read
        account = Seller.objects.order_by("pk").values_list("name", "iban", "bic").first()
    seller = dict(zip(("name", "iban", "bic"), account or ("", "", ""), strict=True))
    bank = bank_details(seller=seller, name=f"{WALLET}{row.pk}", amount=None)
    return bank_transfer(bank, amount="any") if bank is not None else None


def _say(request: HttpRequest, attempt: PaymentAttempt) -> None:
    amount = say.minor(attempt.amount, attempt.currency)
    state = AttemptState(attempt.state)
    if state is AttemptState.SUCCEEDED:
        messages.success(request, _("{amount} was credited.").format(amount=amount))
    elif state is AttemptState.NEEDS_ACTION:
        messages.error(request, _("Your bank wants you to confirm: pay on the payment page instead."))
    elif state in {AttemptState.FAILED, AttemptState.CANCELED}:
        messages.error(request, _(attempt.message) or _("The card was refused; nothing was charged."))
    else:
        text = _("The payment of {amount} is under way; it is credited when it has come.")
        messages.info(request, text.format(amount=amount))


def _minor(text: str, currency: str, *, least: int = 1) -> int:
    try:
        money = Money.of(form_input.check_number(text.strip()), currency)
        money.check_bookable()
    except ValueError as error:
        raise CollectionError("top-up-unreadable", currency=currency) from error
    minor = money.minor
    if minor < least:
        raise CollectionError("top-up-amount")
    return minor


def _wallet(tenant: Tenant, wallet: int) -> Wallet:
    row = Wallet.objects.filter(tenant=tenant, pk=wallet).select_related("tenant", "project").first()
    if row is None:
        raise Http404("no such wallet")
    return row
