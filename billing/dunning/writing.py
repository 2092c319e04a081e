"""What a letter says: one text of short paragraphs, placed in a plain and a drawn layout; nothing in it is markup."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from babel.dates import format_date
from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse

from billing import collection
from billing.collecting import declines, door, due
from billing.documents.format import LOCALE, money_text
from billing.dunning.letters import card_name
from billing.dunning.policies import Policies
from billing.models import AttemptState, Invoice, Letter, LetterKind, PaymentAttempt, Seller
from billing.rules.references import creditor_reference, in_groups
from portal.tenants.models import Membership, Role, Tenant


@dataclass(frozen=True, slots=True)
class Written:
    """One e-mail, ready to be sent."""

    subject: str
    text: str
    html: str


def write(letter: Letter, *, moment: datetime) -> Written:
    """The letter as things stand at the moment."""
    told = _told(letter, moment)
    body = render_to_string(f"emails/{letter.kind}.txt", told).strip()
    subject, _, rest = body.partition("\n")
    parts = [_line(part) for part in rest.strip().split("\n\n") if part.strip()]
    placed = {**told, "subject": _line(subject), "parts": parts}
    return Written(
        placed["subject"][:200],
        render_to_string("emails/letter.txt", placed).strip() + "\n",
        render_to_string("emails/letter.html", placed),
    )


def recipients(tenant: Tenant) -> list[str]:
    """Its billing address; where it has none, its owners, and whoever else sees to its bills."""
    if tenant.email:
        return [tenant.email]
    people = Membership.objects.filter(
        tenant=tenant, role__in=(Role.OWNER, Role.BILLING), user__is_active=True
    )
    return list(people.order_by("pk").values_list("user__email", flat=True))


def _told(letter: Letter, moment: datetime) -> dict[str, Any]:
    tenant, invoice = letter.tenant, letter.invoice
    told: dict[str, Any] = {
        "tenant": _line(tenant.name),
        "step": letter.step,
        "again": bool(letter.told.get("again")),
        "cards": door.is_configured(),
        "facts": [],
        "seller": _seller(invoice),
        "button": "Your means of payment",
        "page": _address("payment", tenant.slug),
        "card": _line(str(letter.told.get("card", ""))),
    }
    if invoice is not None:
        told |= _of_invoice(invoice, moment)
    if letter.attempt is not None:
        told |= _of_attempt(letter.attempt)
    if letter.kind == LetterKind.ANNOUNCE and invoice is not None and invoice.due_on is not None:
        policy = Policies([tenant.pk]).of(tenant.pk, invoice.due_on)
        today = moment.astimezone(ZoneInfo(invoice.timezone)).date()
        planned = invoice.due_on + timedelta(days=policy.suspend)
        told["from_day"] = _day(max(planned, today + timedelta(days=policy.announce)))
    return told


def _of_invoice(invoice: Invoice, moment: datetime) -> dict[str, Any]:
    stand = collection.balance(invoice=invoice, on=moment.date())
    number, amount = invoice.number or "", money_text(stand.due)
    facts = [("Invoice", number), ("To pay", amount)]
    if invoice.due_on is not None:
        facts.append(("Due since", _day(invoice.due_on)))
    if invoice.seller.get("iban") and stand.due.minor > 0:
        reference = creditor_reference(number)
        facts.append(("By transfer to", in_groups(invoice.seller["iban"].replace(" ", "").upper())))
        facts.append(("Reference", in_groups(reference) if reference else number))
    if stand.due.minor <= 0:
        facts = [("Invoice", number), ("Paid", money_text(stand.paid + stand.from_wallet))]
    return {
        "ways": _ways(invoice),
        "number": number,
        "amount": amount,
        "due_day": _day(invoice.due_on) if invoice.due_on else "",
        "facts": facts,
        "button": f"Invoice {number}",
        "page": _address("invoice", invoice.tenant.slug, number),
    }


def _ways(invoice: Invoice) -> str:
    """How it can be paid here: `by card on its page, or by bank transfer under its reference`."""
    ways = ["by card on its page"] if door.is_configured() else []
    if invoice.seller.get("iban"):
        ways.append("by bank transfer under its reference")
    return ", or ".join(ways) or "as its page says"


def _of_attempt(attempt: PaymentAttempt) -> dict[str, Any]:
    """Why it was refused, and whether it is tried again by itself."""
    again = None
    if attempt.invoice is not None and attempt.invoice.due_on is not None and attempt.method is not None:
        policy = Policies([attempt.tenant_id]).of(attempt.tenant_id, attempt.invoice.due_on)
        if attempt.method.preferred and attempt.state == AttemptState.FAILED:
            refused = due.refusals([attempt.invoice.pk]).get(attempt.invoice.pk, [])
            again = due.next_try(refused, policy.retries)
    return {
        "card": _line(card_name(attempt.method)) if attempt.method else "your means of payment",
        "why": _line(attempt.message) or "Your bank gave no reason.",
        "again": _day(again.astimezone(attempt.tenant.zone).date()) if again else "",
        "hard": declines.is_hard(attempt),
    }


def _seller(invoice: Invoice | None) -> str:
    """As on the invoice; of what is about none, as it is now."""
    if invoice is not None and invoice.seller.get("name"):
        return _line(invoice.seller["name"])
    found = Seller.objects.order_by("pk").first()
    return _line(found.name) if found else "ClusterTab"


def _address(page: str, *names: str) -> str:
    """Of a page of ours; "" where nobody has said under which address people reach us."""
    return f"{settings.PORTAL_URL}{reverse(page, args=names)}" if settings.PORTAL_URL else ""


def _line(text: str) -> str:
    """As one line, whatever is in it: a name neither begins a paragraph nor another header."""
    return " ".join(text.split())


def _day(on: date) -> str:
    """`3 March 2026`"""
    return str(format_date(on, "d MMMM y", locale=LOCALE))
