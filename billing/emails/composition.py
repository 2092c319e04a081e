"""E-mails from templates/emails: short paragraphs, placed in a plain and an HTML layout; nothing in it is markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from billing.emails import document_text, ending_text, quota_text, waste_text
from billing.emails.formatting import (
    format_day,
    format_sums,
    load_seller_name,
    load_transfer_details,
    one_line,
    page_url,
)
from billing.models import (
    AttemptState,
    Invoice,
    MethodState,
    Notice,
    NoticeKind,
    PaymentAttempt,
    SavedMethod,
)
from billing.notifications.document_notices import KINDS
from billing.payments import declines, gateway_access, payment_links, retries
from billing.payments.card_notices import format_card, localized_card
from billing.receivables import settlement
from billing.receivables.dunning_policies import Policies
from billing.rules.formatting import money_text
from billing.rules.money import Money
from portal.core.tenants.brand import COLOR, current_brand
from portal.core.tenants.models import Tenant
from portal.languages import in_language

TOGETHER = (
    NoticeKind.ANNOUNCE,
    NoticeKind.CONFIRM,
    NoticeKind.REFUSED,
    NoticeKind.PAST_DUE,
    NoticeKind.REMINDER,
    NoticeKind.RECEIPT,
)
"""Whose text speaks of many at once; of any other kind, each has its own."""
LINKED = (NoticeKind.PAST_DUE, NoticeKind.REMINDER, NoticeKind.ANNOUNCE, NoticeKind.SUSPENDED)
"""Which have a link to pay without signing in, where the policy says so."""


@dataclass(frozen=True, slots=True)
class Email:
    """One e-mail, ready to be sent."""

    subject: str
    text: str
    html: str
    parts: Sequence[str] = ()  # its paragraphs
    facts: Sequence[tuple[str, str]] = ()  # its table


def compose_email(
    notices: Sequence[Notice], *, moment: datetime, links: Sequence[tuple[str, str]] = ()
) -> Email:
    """The e-mail of these notices of one tenant, which are in order, as things stand at the moment; in its language.

    `links`: further ones below its table, each a label and an address.
    """
    with in_language(notices[0].tenant.language):
        return _compose(notices, moment, links)


def _compose(notices: Sequence[Notice], moment: datetime, links: Sequence[tuple[str, str]]) -> Email:
    contexts = [notice_context(notice, moment) for notice in notices]
    subject, parts = "", []
    for kind, group in _make_sections(notices, contexts):
        body = render_to_string(f"emails/{kind}.txt", _make_section(group)).strip()
        head, _blank, rest = body.partition("\n")
        subject = subject or one_line(head)
        parts += [one_line(part) for part in rest.strip().split("\n\n") if part.strip()]
    placed = contexts[0] | _layout_context(notices[0].tenant, contexts)
    placed["links"] = [*placed.get("links", ()), *links]
    return render_email(placed, subject=subject, parts=parts)


def render_email(placed: dict[str, Any], *, subject: str, parts: Sequence[str]) -> Email:
    """The layout around paragraphs, with what else it places: greeting, table, links, button."""
    placed = placed | {"subject": subject, "parts": parts, "brand": current_brand(), "color": COLOR}
    return Email(
        subject[:200],
        render_to_string("emails/notice.txt", placed).strip() + "\n",
        render_to_string("emails/notice.html", placed),
        parts=parts,
        facts=placed["facts"],
    )


def _make_sections(
    notices: Sequence[Notice], contexts: Sequence[dict[str, Any]]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What is said at once, in order."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for place, (notice, context) in enumerate(zip(notices, contexts, strict=True)):
        key = (notice.kind, 0 if notice.kind in TOGETHER else place)
        groups.setdefault(key, []).append(context)
    for (kind, _place), group in groups.items():
        yield kind, group


def _make_section(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(group) == 1:
        return group[0]
    days = [context["from"] for context in group if "from" in context]
    return group[0] | {
        "many": True,
        "count": len(group),
        "items": group,
        "amount": format_sums(context["due"] for context in group),
        "from_day": format_day(min(days)) if days else "",
    }


def _layout_context(tenant: Tenant, contexts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table and the button: of one notice its own, of several a row each and the page that they share."""
    if len(contexts) == 1:
        return {}
    rows = [context["row"] for context in contexts if "row" in context]
    pages = {context["page"] for context in contexts}
    button = (
        {} if len(pages) == 1 else {"button": _("Your invoices"), "page": page_url("invoices", tenant.slug)}
    )
    links = [context["link"] for context in contexts if "link" in context]
    return {"facts": list(dict.fromkeys(rows)), "links": list(dict.fromkeys(links))} | button


def notice_context(notice: Notice, moment: datetime) -> dict[str, Any]:
    """What the templates place of one notice; `facts` are its table, `row` its line in a table of several."""
    tenant, invoice = notice.tenant, notice.invoice
    context: dict[str, Any] = {
        "tenant": one_line(tenant.name),
        "number_of_reminder": notice.details.get("number", notice.step),
        "again": bool(notice.details.get("again")),
        "cards": gateway_access.is_configured(),
        "facts": [],
        "seller": _load_seller(invoice),
        "button": _("Payment methods"),
        "page": page_url("payment", tenant.slug),
        "card": one_line(localized_card(str(notice.details.get("card", "")))),
        "blocked": one_line(", ".join(notice.details.get("blocked", ()))),
    }
    if notice.kind == NoticeKind.QUOTA:
        return context | quota_text.quota_context(notice)
    if notice.kind == NoticeKind.QUOTA_ENDING:
        return context | ending_text.ending_context(notice)
    if notice.kind == NoticeKind.WASTE:
        return context | waste_text.waste_context(notice)
    if notice.kind in KINDS:
        return context | document_text.document_context(notice, moment)
    if invoice is not None:
        context |= _invoice_context(invoice, moment)
        if notice.kind in LINKED:
            context |= _link_context(invoice, moment)
    if notice.attempt is not None:
        context |= _attempt_context(notice.attempt)
    elif "last_day" in notice.details:
        last_day = datetime.fromisoformat(notice.details["last_day"]).date()
        context |= {"last_day": format_day(last_day), "spare": _other_card(tenant, notice.key.split(":")[1])}
    if notice.kind == NoticeKind.ANNOUNCE and invoice is not None and invoice.due_on is not None:
        policy = Policies([tenant.pk]).of(tenant.pk, invoice.due_on)
        today = moment.astimezone(ZoneInfo(invoice.timezone)).date()
        planned = invoice.due_on + timedelta(days=policy.suspend)
        from_day = max(planned, today + timedelta(days=policy.announce))
        context |= {"from": from_day, "from_day": format_day(from_day)}
    return context


def _invoice_context(invoice: Invoice, moment: datetime) -> dict[str, Any]:
    stand = settlement.load_balance(invoice=invoice, on=moment.date())
    number, amount = invoice.number or "", money_text(stand.due)
    due_day = format_day(invoice.due_on) if invoice.due_on else ""
    facts = [(_("Invoice"), number), (_("Amount due"), amount)]
    if due_day:
        facts.append((_("Due since"), due_day))
    if stand.due.minor > 0:
        facts += load_transfer_details(invoice)
    else:
        facts = [(_("Invoice"), number), (_("Paid"), money_text(stand.paid + stand.from_wallet))]
    return {
        "ways": _payment_ways(invoice),
        "number": number,
        "amount": amount,
        "due": stand.due,
        "due_day": due_day,
        "facts": facts,
        "row": (_("Invoice {number}, due since {day}").format(number=number, day=due_day), amount),
        "button": _("Invoice {number}").format(number=number),
        "page": page_url("invoice", invoice.tenant.slug, number),
    }


def _link_context(invoice: Invoice, moment: datetime) -> dict[str, Any]:
    """The page behind a payment link in place of the one that asks to sign in, where the policy wants it."""
    day = invoice.due_on or moment.date()
    if not settings.PORTAL_URL or not Policies([invoice.tenant_id]).of(invoice.tenant_id, day).payment_links:
        return {}
    link = payment_links.link_of_reminder(invoice=invoice, moment=moment)
    if link is None:
        return {}
    label = _("Pay invoice {number}").format(number=invoice.number)
    url = payment_links.url_of(link)
    return {"page": url, "button": label, "link": (label, url)}


def _payment_ways(invoice: Invoice) -> str:
    """How it can be paid here: `by card on its page, or by bank transfer with its reference`."""
    ways = [_("by card on its page")] if gateway_access.is_configured() else []
    if invoice.seller.get("iban"):
        ways.append(_("by bank transfer with its reference"))
    return _(", or ").join(ways) or _("as described on its page")


def _attempt_context(attempt: PaymentAttempt) -> dict[str, Any]:
    """Why it was refused, whether it is retried automatically, and which other card is charged or could be."""
    again = None
    if attempt.invoice is not None and attempt.invoice.due_on is not None and attempt.method is not None:
        policy = Policies([attempt.tenant_id]).of(attempt.tenant_id, attempt.invoice.due_on)
        if attempt.method.preferred and attempt.state == AttemptState.FAILED:
            refused = retries.load_refusals([attempt.invoice.pk]).get(attempt.invoice.pk, [])
            again = retries.next_try(refused, policy.retries)
    usable = SavedMethod.objects.filter(tenant=attempt.tenant_id, state=MethodState.USABLE, preferred=True)
    heir = usable.exclude(pk=attempt.method_id or 0).first()
    context = {
        "card": one_line(format_card(attempt.method)) if attempt.method else _("your payment method"),
        "why": one_line(_(attempt.message)) or _("Your bank gave no reason."),
        "again": format_day(again.astimezone(attempt.tenant.zone).date()) if again else "",
        "hard": declines.is_hard(attempt),
        "asks": attempt.state == AttemptState.NEEDS_ACTION,
        "heir": one_line(format_card(heir)) if heir else "",
        "spare": _other_card(attempt.tenant, str(attempt.method_id)),
    }
    if attempt.top_up is not None:
        context |= {
            "amount": money_text(Money.from_minor(attempt.amount, attempt.currency)),
            "wallet": one_line(str(attempt.top_up.wallet)),
            "button": _("Your wallet"),
            "page": page_url("wallet", attempt.tenant.slug, attempt.top_up.wallet_id),
        }
    return context


def _other_card(tenant: Tenant, method: str) -> str:
    """Another saved card that could be charged, and is not charged automatically."""
    usable = SavedMethod.objects.filter(tenant=tenant, state=MethodState.USABLE, preferred=False)
    spare = usable.exclude(pk=method).order_by("-added_at").first() if method.isdigit() else usable.first()
    return one_line(format_card(spare)) if spare else ""


def _load_seller(invoice: Invoice | None) -> str:
    """As on the invoice; of what is about none, as it is now."""
    if invoice is not None and invoice.seller.get("name"):
        return one_line(invoice.seller["name"])
    return load_seller_name()
