"""Links for finance departments: one invoice, seen and paid by whoever has the link, without signing in."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.db.models import QuerySet
from django.urls import reverse

from billing.models import CheckoutSession, DocumentKind, Invoice, InvoiceState, PaymentLink
from billing.payments import checkout_sessions
from billing.payments.checkout_sessions import ReturnUrls
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import Gateway
from billing.receivables import settlement
from portal.core.tenants.models import Tenant

DAYS: Final = (7, 30, 90)
"""For how long a link can be valid; the second is what forms offer first."""
OF_REMINDERS: Final = timedelta(days=30)
ENOUGH_LEFT: Final = timedelta(days=14)
"""A reminder repeats the link of the one before while that is valid for as long, or longer."""
MOST_OPEN: Final = 10
"""Valid links of one invoice."""
MOST_PAGES: Final = 10
"""Hosted pages that one link opens within an hour: nobody uses up what the tenant may open."""

_signer = Signer(sep=".", salt="billing.payment_link")


@transaction.atomic
def make_link(*, invoice: Invoice, days: int, by: str, moment: datetime) -> PaymentLink:
    """A new link, valid for so many days; made again, there are two.

    Raises CollectionError where nothing of the invoice can be paid, for other days than DAYS, and beyond MOST_OPEN.
    """
    if days not in DAYS:
        raise CollectionError("link-days", days=", ".join(map(str, DAYS)))
    return _make(_payable(invoice, moment), timedelta(days=days), by, moment)


@transaction.atomic
def link_of_reminder(*, invoice: Invoice, moment: datetime) -> PaymentLink | None:
    """The link that a reminder has: that of the one before while it lasts, else a new one; None beyond MOST_OPEN."""
    row = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    earlier = open_links(row, moment).filter(maker="", expires_at__gte=moment + ENOUGH_LEFT)
    if (newest := earlier.order_by("-expires_at", "-pk").first()) is not None:
        return newest
    if open_links(row, moment).count() >= MOST_OPEN:
        return None
    return _make(row, OF_REMINDERS, "", moment)


@transaction.atomic
def revoke_link(*, link: PaymentLink, by: str, moment: datetime) -> None:
    """Have it open nothing any more. A second call changes nothing."""
    row = PaymentLink.objects.select_for_update().get(pk=link.pk)
    if row.revoked_at is None:
        row.revoked_at, row.revoked_by = moment, by
        row.save(update_fields=["revoked_at", "revoked_by"])


@transaction.atomic
def revoke_links(*, tenant: Tenant, by: str, moment: datetime) -> None:
    """Have none of the tenant's links open anything any more. A second call changes nothing."""
    rows = PaymentLink.objects.filter(tenant=tenant, revoked_at=None, expires_at__gt=moment)
    rows.update(revoked_at=moment, revoked_by=by)


def open_links(invoice: Invoice, moment: datetime) -> QuerySet[PaymentLink]:
    """Those that open the invoice now, the newest first."""
    rows = PaymentLink.objects.filter(invoice=invoice, revoked_at=None, expires_at__gt=moment)
    return rows.order_by("-created_at", "-pk")


def token_of(link: PaymentLink) -> str:
    """What stands in its address: number and end, signed, so that no end can be put off."""
    return _signer.sign(f"{link.pk}-{int(link.expires_at.timestamp())}")


def path_of(link: PaymentLink) -> str:
    return reverse("payment_link", args=[token_of(link)])


def url_of(link: PaymentLink) -> str:
    """As it stands in e-mails; "" where nobody has said under which address people reach us."""
    return f"{settings.PORTAL_URL}{path_of(link)}" if settings.PORTAL_URL else ""


def of_token(token: str, *, moment: datetime) -> PaymentLink | None:
    """The link that opens an invoice at this moment; None for one that is not ours, has ended or was revoked.

    One query at most.
    """
    try:
        number, _, end = _signer.unsign(token).partition("-")
    except BadSignature:
        return None
    rows = PaymentLink.objects.select_related("tenant", "invoice")
    link = rows.filter(pk=number, revoked_at=None, expires_at__gt=moment).first()
    return link if link is not None and int(link.expires_at.timestamp()) == int(end) else None


def name_of(link: PaymentLink) -> str:
    """Who opens its hosted pages, as these say it."""
    return f"payment link {link.pk}"


def pages_of(link: PaymentLink) -> QuerySet[CheckoutSession]:
    """The hosted pages that were opened by it."""
    return CheckoutSession.objects.filter(tenant=link.tenant_id, requested_by=name_of(link))


def open_page(*, link: PaymentLink, gateway: Gateway, back: ReturnUrls, moment: datetime) -> CheckoutSession:
    """As `open_payment_page`, for somebody unknown: no saved card and no address of the tenant is shown there.

    Raises CollectionError also after many new pages within an hour.
    """
    if pages_of(link).filter(created_at__gt=moment - timedelta(hours=1)).count() >= MOST_PAGES:
        raise CollectionError("too-many-pages", count=MOST_PAGES)
    return checkout_sessions.open_payment_page(
        invoice=link.invoice, gateway=gateway, back=back, who=name_of(link), moment=moment, of_tenant=False
    )


def _payable(invoice: Invoice, moment: datetime) -> Invoice:
    row = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if row.state != InvoiceState.ISSUED or row.kind == DocumentKind.CREDIT_NOTE:
        raise CollectionError("not-payable", invoice=row)
    if settlement.load_balance(invoice=row, on=moment.date()).due.minor <= 0:
        raise CollectionError("nothing-due")
    if open_links(row, moment).count() >= MOST_OPEN:
        raise CollectionError("too-many-links", most=MOST_OPEN)
    return row


def _make(invoice: Invoice, valid_for: timedelta, by: str, moment: datetime) -> PaymentLink:
    return PaymentLink.objects.create(
        tenant_id=invoice.tenant_id,
        invoice=invoice,
        maker=by,
        created_at=moment,
        expires_at=moment + valid_for,
    )
