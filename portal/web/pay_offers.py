"""How an invoice, or all that are open, can be paid by card now; and what became of the last charge."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from django.db.models import Q
from django.utils.translation import gettext as _

from billing.models import (
    UNDER_WAY,
    AttemptState,
    BillingAccount,
    Invoice,
    MethodState,
    PaymentAttempt,
    SavedMethod,
)
from billing.payments import gateway_access, retries
from billing.queries.invoices import Open
from billing.receivables.dunning_policies import Policies
from billing.receivables.settlement import Balance
from billing.rules.money import Money
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web.access_decorators import TenantRequest
from portal.web.cards import label_of, means_of


def offer(request: TenantRequest, invoice: Invoice, stand: Balance, *, due: bool) -> dict[str, object] | None:
    """How the invoice can be paid by card, or why not now; None where it cannot, or need not. Six queries."""
    if not gateway_access.is_configured() or not due:
        return None
    tried = PaymentAttempt.objects.filter(invoice=invoice).annotate(is_under_way=Q(UNDER_WAY))
    newest = tried.select_related("method").order_by("-is_under_way", "-created_at").first()
    under_way = newest is not None and newest.is_under_way
    confirm = newest is not None and newest.state == AttemptState.OFFERED and bool(newest.requested_by)
    note, tone = _note(request, invoice, newest, under_way=under_way, confirm=confirm)
    may_pay = Action.PAY in request.may and not under_way
    return {
        "note": note,
        "tone": tone,
        "button": may_pay,
        "sandbox": gateway_access.is_sandbox(),
        "amount": say.money(stand.due),
        "card": _card(request) if may_pay else "",
        "key": str(uuid4()),
        "seen": _written([stand.due]),
        "confirm": str(newest.pk) if newest is not None and confirm and may_pay else "",
    }


def open_offer(request: TenantRequest, to_pay: Open, *, least: int = 2) -> dict[str, object] | None:
    """Where so many invoices are open and the visitor may pay; `card` is "" where none is saved. One query at most.

    `number` is that of the invoice where one alone is open.
    """
    count = to_pay.count - to_pay.processing
    if not gateway_access.is_configured() or Action.PAY not in request.may or count < least:
        return None
    return {
        "count": say.counted(count, "open invoice"),
        "amount": say.sums(to_pay.sums) if not to_pay.processing else "",
        "number": to_pay.number if count == 1 else "",
        "card": _card(request),
        "key": str(uuid4()),
        "seen": _written(to_pay.sums),
        "sandbox": gateway_access.is_sandbox(),
    }


def _written(amounts: Iterable[Money]) -> str:
    """As the form sends it back: `USD=400 EUR=20`."""
    return " ".join(f"{amount.currency}={amount.minor}" for amount in amounts)


def _card(request: TenantRequest) -> str:
    saved = SavedMethod.objects.filter(
        tenant=request.tenant, preferred=True, state=MethodState.USABLE
    ).first()
    return label_of(saved) if saved else ""


def _note(
    request: TenantRequest, invoice: Invoice, newest: PaymentAttempt | None, *, under_way: bool, confirm: bool
) -> tuple[str, str]:
    """What is said of the last charge, and how gravely."""
    if newest is not None and under_way:
        amount = say.minor(newest.amount, newest.currency)
        if newest.state == AttemptState.NEEDS_REVIEW:
            return _("A payment of {amount} is being reviewed. Please do not pay again.").format(
                amount=amount
            ), "info"
        text = _("A payment of {amount} is being processed. You do not need to do anything.")
        return text.format(amount=amount), "info"
    if confirm or (newest is not None and newest.state == AttemptState.NEEDS_ACTION):
        return _("Your bank asks you to confirm the payment."), "danger"
    when = _next_charge(request, invoice)
    if newest is not None and newest.state == AttemptState.FAILED:
        message = _(newest.message) or _("The bank gave no reason.")
        text = _("{means} was refused: {message} {when}")
        return text.format(means=means_of(newest), message=message, when=when).strip(), "danger"
    return when, "info"


def _next_charge(request: TenantRequest, invoice: Invoice) -> str:
    """When the card is charged for it by itself, where it was refused for this or another invoice; "" where not."""
    if BillingAccount.objects.filter(tenant=request.tenant, automatic=False).exists():
        return ""
    policies = Policies([request.tenant.pk])
    rest = retries.load_card_rests([request.tenant.pk], policies).get(request.tenant.pk)
    refused = retries.load_refusals([invoice.pk]).get(invoice.pk, [])
    if refused and invoice.due_on is not None:
        own = retries.next_try(refused, policies.of(request.tenant.pk, invoice.due_on).retries)
        if own is None:
            return _("It is not charged again automatically.")
        moment = max(own, rest.until) if rest else own
        return _("It is charged again on {day}.").format(day=say.day(moment.astimezone(request.zone).date()))
    if rest is None or rest.until <= request.moment or rest.attempt.invoice_id == invoice.pk:
        return ""
    card, other = means_of(rest.attempt), rest.attempt.invoice
    day = say.day(rest.until.astimezone(request.zone).date())
    return _("{card} was refused for {invoice}. It is charged from {day} on.").format(
        card=card, invoice=other.number if other else _("another invoice"), day=day
    )
