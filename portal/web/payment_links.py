"""One invoice behind a payment link: seen and paid by a finance department that does not sign in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from billing.models import AttemptState, CheckoutSession, Invoice, PaymentLink
from billing.payments import checkout_sessions, gateway_access, payment_links
from billing.payments.gateway_access import CollectionError, UnmatchedObjectError
from billing.payments.gateways.base import GatewayError
from billing.queries import invoices as reading
from portal.core.audit import acting_as
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, tenant_scope
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, tenant_act
from portal.web.invoice_document import InvoicePage, shown
from portal.web.payment import CONFIRMING, onwards, page_of, person_of
from portal.web.rate_limits import within_rate

RATE = "60/m/ip"
LinkView = Callable[..., HttpResponse]


@dataclass(frozen=True, kw_only=True)
class LinkRow:
    """A valid link, as the page of its invoice shows it."""

    pk: int
    url: str
    until: datetime
    maker: str  # "": a reminder


@dataclass(frozen=True, kw_only=True)
class LinkPage:
    invoice: InvoicePage
    paths: dict[str, str]  # what hangs from the link: "pdf", "card"
    pays: bool  # by card, now
    sandbox: bool
    until: datetime
    zone: object


def link_page(*methods: str) -> Callable[[LinkView], LinkView]:
    """The view of what a payment link opens, called with the link: anybody's who has it.

    One that opens nothing is answered with 404 and the same sentence, whatever became of it. Nobody is told where
    readers came from, no search engine keeps the page, and no cache. Forms need no token: no cookie gives a right.
    """

    def decorate(view: LinkView) -> LinkView:
        @csrf_exempt
        @never_cache
        @require_http_methods([*methods])
        @wraps(view)
        def page(request: HttpRequest, *, token: str) -> HttpResponse:
            if not within_rate(request, "payment_link", RATE):
                response = render(request, "payment_link_ended.html", {"busy": True}, status=429)
            elif (link := payment_links.of_token(token, moment=datetime.now(UTC))) is None:
                response = render(request, "payment_link_ended.html", status=404)
            else:
                with acting_as(payment_links.name_of(link), through="payment link"):
                    response = view(request, link)
            response.headers["Referrer-Policy"] = "no-referrer"
            response.headers["X-Robots-Tag"] = "noindex, nofollow"
            return response

        return page

    return decorate


@link_page("GET", "HEAD")
def payment_link(request: HttpRequest, link: PaymentLink) -> HttpResponse:
    """The invoice, how it stands, and how to pay it."""
    today = datetime.now(UTC).astimezone(link.tenant.zone).date()
    with tenant_scope(link.tenant):
        document = shown(reading.detail(link.tenant, link.invoice.number or "", on=today))
    names = ("pdf", "card")
    page = LinkPage(
        invoice=document,
        paths={name: reverse(f"payment_link_{name}", args=[payment_links.token_of(link)]) for name in names},
        pays=bool(document.due) and not document.processing and gateway_access.is_configured(),
        sandbox=gateway_access.is_sandbox(),
        until=link.expires_at,
        zone=link.tenant.zone,
    )
    return render(request, "payment_link.html", {"page": page})


@link_page("GET", "HEAD")
def payment_link_pdf(request: HttpRequest, link: PaymentLink) -> HttpResponse:
    with tenant_scope(link.tenant):
        content = reading.document(link.invoice)
    number = link.invoice.number
    if content is None:
        messages.info(request, _("The PDF is not ready yet. Please try again in a minute."))
        return redirect(payment_links.path_of(link))
    headers = {"Content-Disposition": f'inline; filename="{number}.pdf"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(content, content_type="application/pdf", headers=headers)


@link_page("POST")
def payment_link_card(request: HttpRequest, link: PaymentLink) -> HttpResponse:
    """To the hosted page on which the invoice is paid."""
    token = payment_links.token_of(link)
    back = checkout_sessions.ReturnUrls(
        completed=request.build_absolute_uri(reverse("payment_link_back", args=[token])),
        canceled=request.build_absolute_uri(reverse("payment_link_stopped", args=[token])),
    )

    def opened() -> CheckoutSession:
        return payment_links.open_page(
            link=link, gateway=gateway_access.get_gateway(), back=back, moment=datetime.now(UTC)
        )

    with acting_scope(link.tenant):
        return onwards(request, opened, payment_links.path_of(link))


@link_page("GET", "HEAD")
def payment_link_back(request: HttpRequest, link: PaymentLink) -> HttpResponse:
    """Back from the hosted page: what happened there is asked of the gateway."""
    name = request.GET.get("session", "").replace("\0", "")
    with acting_scope(link.tenant):
        checkout = payment_links.pages_of(link).filter(external_id=name).first()
        if checkout is None:
            raise Http404("no such page of this link")
        looked = False
        with suppress(GatewayError, CollectionError, UnmatchedObjectError):
            looked = checkout_sessions.handle_return(
                checkout=checkout, gateway=gateway_access.get_gateway(), moment=datetime.now(UTC)
            )
        checkout = payment_links.pages_of(link).select_related("attempt").get(pk=checkout.pk)
    attempt = checkout.attempt
    if not looked:
        messages.info(request, CONFIRMING)
    elif attempt is not None and attempt.state == AttemptState.SUCCEEDED:
        amount = say.minor(attempt.amount, attempt.currency)
        messages.success(request, _("%(amount)s paid. Thank you.") % {"amount": amount})
    return redirect(payment_links.path_of(link))


@link_page("GET", "HEAD")
def payment_link_stopped(request: HttpRequest, link: PaymentLink) -> HttpResponse:
    """Back from a hosted page that was left unpaid: it is closed."""
    with acting_scope(link.tenant):
        checkout = page_of(link.tenant, request.GET.get("page", ""))
        if checkout is None or checkout.requested_by != payment_links.name_of(link):
            raise Http404("no such page of this link")
        with suppress(GatewayError, CollectionError, UnmatchedObjectError):  # else a round closes it
            checkout_sessions.close_session(
                checkout=checkout, gateway=gateway_access.get_gateway(), moment=datetime.now(UTC)
            )
    return redirect(payment_links.path_of(link))


@tenant_act(Action.PAY, proof=True)
def change_payment_links(request: HttpRequest, tenant: Tenant, number: str) -> HttpResponse:
    """Make a link to an invoice, or revoke one."""
    invoice = Invoice.objects.filter(tenant=tenant, number=number.replace("\0", "")).first()
    if invoice is None or not invoice.number:
        raise Http404("no such invoice")
    moment = datetime.now(UTC)
    try:
        if request.POST.get("act") == "revoke":
            _revoke(request, invoice, moment)
        else:
            days = request.POST.get("days", "")
            payment_links.make_link(
                invoice=invoice,
                days=int(days) if days.isdecimal() and len(days) < 4 else 0,
                by=person_of(request),
                moment=moment,
            )
            messages.success(
                request, _("Payment link made: copy it below and send it to the person who pays.")
            )
    except CollectionError as refusal:
        messages.error(request, sentence(refusal))
    return redirect("invoice", tenant.slug, invoice.number)


def _revoke(request: HttpRequest, invoice: Invoice, moment: datetime) -> None:
    number = request.POST.get("link", "")
    link = PaymentLink.objects.filter(invoice=invoice, pk=number if number.isdecimal() else 0).first()
    if link is None:
        raise Http404("no such link")
    payment_links.revoke_link(link=link, by=person_of(request), moment=moment)
    messages.success(request, _("Payment link revoked: it opens nothing any more."))


def links_of(request: TenantRequest, invoice: Invoice, *, due: bool) -> Sequence[LinkRow] | None:
    """Of an invoice, for those who may pay it; None for the others, and while an operator looks. One query.

    Where nothing is due, None for no links: those that there are show the invoice still, and can be revoked.
    """
    if Action.PAY not in request.may or getattr(request, "support_view", None) is not None:
        return None
    rows = [
        LinkRow(
            pk=link.pk,
            url=payment_links.url_of(link) or request.build_absolute_uri(payment_links.path_of(link)),
            until=link.expires_at,
            maker=link.maker,
        )
        for link in payment_links.open_links(invoice, request.moment)
    ]
    return rows if rows or due else None
