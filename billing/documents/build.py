"""From an issued invoice's frozen rows to the document that shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.catalog.line_descriptions import detail
from billing.documents.invoice import DocumentLine, InvoiceDocument, Party
from billing.documents.parties import address_lines
from billing.models import (
    BillingPeriod,
    DocumentKind,
    Evidence,
    Invoice,
    InvoiceLine,
    InvoiceState,
    InvoiceTax,
    TaxCategory,
)
from billing.rules.bank_details import bank_details
from billing.rules.formatting import country_name, hours_text, localized, money_text, price_text
from billing.rules.meters import plural
from billing.rules.money import Money
from billing.rules.period import Period, label
from billing.wallets import invoice_payments
from portal.core.tenants.brand import frozen_brand, load_logo
from portal.languages import in_language
from portal.locales import current

TITLES: Mapping[str, str] = {
    DocumentKind.INVOICE: gettext_noop("Invoice"),
    DocumentKind.CORRECTION: gettext_noop("Invoice of corrections"),
    DocumentKind.CREDIT_NOTE: gettext_noop("Credit note"),
}


TAX_NAMES = (gettext_noop("VAT"),)
"""Names of taxes that sellers give and that have one in each language."""
FROZEN = (InvoiceState.ISSUED, InvoiceState.VOID)
MOST_LINES = 1_000
"""That are printed one by one; beyond, a PDF would take seconds and be of use to nobody."""


def title_of(kind: str, *, corrects: bool) -> str:
    """What the document is called; one beside the period's invoice that corrects nothing is an invoice."""
    return _(TITLES[DocumentKind.INVOICE if kind == DocumentKind.CORRECTION and not corrects else kind])


def document_of(invoice: Invoice) -> InvoiceDocument:
    """What the document's PDF shows; only frozen fields go in, so it is the same document for ever.

    In the language that its tenant had, and with the operator's color and logo, when it was issued. Four queries, and
    one for a logo. ValueError for a draft: it has neither number
    nor date.
    """
    with in_language(invoice.buyer.get("language", "")):
        return _document_of(invoice)


def _document_of(invoice: Invoice) -> InvoiceDocument:
    if invoice.number is None or invoice.issued_on is None:
        raise ValueError("A draft has no document; issue it first.")
    seller, buyer = invoice.seller, invoice.buyer
    is_credit = invoice.kind == DocumentKind.CREDIT_NOTE
    taxes = told_taxes(invoice)
    lines = list(invoice.lines.select_related("service_period").order_by("position"))
    left = Money.from_minor(invoice.amount_requested, invoice.currency)
    bank = None if is_credit else bank_details(seller=seller, name=invoice.number, amount=left)
    brand = (invoice.terms if invoice.state in FROZEN else frozen_brand()).get("brand", {})
    return InvoiceDocument(
        number=invoice.number,
        kind=title_of(invoice.kind, corrects=any(line.corrects for line in lines)),
        issued_on=invoice.issued_on,
        due_on=None if is_credit else invoice.due_on,
        refers_to=_refers_to(invoice),
        service_period=period_text(invoice.period_start, invoice.period_end, invoice.timezone),
        customer_no=buyer["slug"],
        buyer_reference=buyer.get("buyer_reference", ""),
        purchase_order=buyer["purchase_order"],
        seller=party_of(seller),
        buyer=party_of(buyer),
        iban=bank.iban if bank else "",
        bic=bank.bic if bank else "",
        payment_reference=bank.reference if bank else "",
        payment_code=bank.code if bank else (),
        currency=invoice.currency,
        lines=_printed(lines, invoice),
        subtotal=_minor(invoice.subtotal, invoice.currency),
        taxes=tuple((tax_label(row, invoice), _minor(row.tax, invoice.currency)) for row in taxes),
        legal=tuple(dict.fromkeys(_(row.reason) for row in taxes if row.reason)),
        total=_minor(invoice.total, invoice.currency),
        prepaid=_prepaid(invoice),
        amount_due=money_text(left),
        due_label=_due_label(invoice),
        notes=_notes(invoice, summed=len(lines) > MOST_LINES),
        accent=brand.get("color", ""),
        logo=load_logo(brand.get("logo", "")),
        language=current(),
    )


def period_text(start: datetime, end: datetime, timezone: str) -> str:
    """`October 2026`, or the first and last day where it is no whole month of the zone."""
    return label(Period(start.astimezone(UTC), end.astimezone(UTC)), ZoneInfo(timezone))


def tax_label(row: InvoiceTax, invoice: Invoice, *, percent: str = "%") -> str:
    """`VAT 19%`; `VAT 19% on €10.00` where that is not all; `VAT 0% (reverse charge)` where none is charged."""
    of = (
        _(" on {amount}").format(amount=_minor(row.net, invoice.currency))
        if row.net != invoice.subtotal
        else ""
    )
    why = f" ({_(UNTAXED[row.category])})" if row.category in UNTAXED else ""
    return f"{_(invoice.tax_name)} {localized(f'{row.rate.normalize():f}')}{percent}{why}{of}"


def told_taxes(invoice: Invoice) -> list[InvoiceTax]:
    """The taxes that a document states, the highest rate first: those that are charged, and why one is not."""
    return [row for row in invoice.taxes.order_by("-rate", "category") if row.rate or row.reason]


UNTAXED: Mapping[str, str] = {
    TaxCategory.REVERSE_CHARGE: gettext_noop("reverse charge"),
    TaxCategory.EXEMPT: gettext_noop("exempt"),
    TaxCategory.EXPORT: gettext_noop("outside the EU"),
    TaxCategory.OUTSIDE: gettext_noop("not subject to it"),
}


def _prepaid(invoice: Invoice) -> tuple[tuple[str, str], ...]:
    wallet = _("Paid from wallet") if invoice.prepaid > 0 else _("Given back to the wallet")
    amounts = ((wallet, invoice.prepaid), (_("Paid from credit balance"), invoice.from_credit))
    return tuple((label, _minor(-amount, invoice.currency)) for label, amount in amounts if amount)


def _due_label(invoice: Invoice) -> str:
    if invoice.kind != DocumentKind.CREDIT_NOTE:
        return _("Amount due")
    return _("Amount credited otherwise") if invoice.prepaid else _("Amount given back")


def drawn_text(invoice: Invoice) -> str:
    """Which grants of the wallet paid on it, and how much; "" where none did. One query, or none."""
    if invoice.prepaid <= 0:
        return ""
    grants = ", ".join(
        _("{amount} of {source}").format(
            amount=_minor(amount, invoice.currency), source=grant.reason or grant.key
        )
        + (_(" (until {day})").format(day=grant.expires_on - timedelta(days=1)) if grant.expires_on else "")
        for grant, amount in invoice_payments.entries(invoice)
    )
    return _(
        "Paid from the wallet: {grants}. Taxes are on the full net: a prepaid balance is a means of payment."
    ).format(grants=grants)


def zone_note(invoice: Invoice) -> str:
    """That the days of its period are those of another zone than before; "" where they are not. One query."""
    if invoice.kind == DocumentKind.CREDIT_NOTE:
        return ""
    before = BillingPeriod.objects.filter(tenant=invoice.tenant_id, end=invoice.period_start).first()
    if before is None or before.timezone == invoice.timezone:
        return ""
    border = f"{invoice.period_start:%Y-%m-%d %H:%M} UTC"
    return _(
        "From this period on, days and periods are those of {zone}; up to {border} they were those of {former}. "
        "Nothing lies in both, and nothing in neither."
    ).format(zone=invoice.timezone, border=border, former=before.timezone)


def _refers_to(invoice: Invoice) -> tuple[tuple[str, str], ...]:
    references = {_("Credits invoice"): invoice.original, _("Replaces"): invoice.replaces}
    return tuple((label, other.number or "") for label, other in references.items() if other is not None)


def _printed(lines: Sequence[InvoiceLine], invoice: Invoice) -> tuple[DocumentLine, ...]:
    """The lines; where they are many, those of one price and service period as one, and then those of one unit."""
    groups: dict[tuple[object, ...], list[InvoiceLine]] = {}
    for by_price in (True, False):
        groups = {}
        for line in lines:
            key: tuple[object, ...] = (line.service_period_id, line.correction, line.kind, line.unit)
            if len(lines) <= MOST_LINES:
                key = (line.position,)
            elif by_price:
                key = (*key, line.description, line.unit_price, line.price_id, line.term_id)
            groups.setdefault(key, []).append(line)
        if len(groups) <= MOST_LINES:
            break
    return tuple(
        _line(group[0], invoice) if len(group) == 1 else _sum_of(group, invoice) for group in groups.values()
    )


def _sum_of(group: Sequence[InvoiceLine], invoice: Invoice) -> DocumentLine:
    """One row for all of them; what they do not share is left out."""
    first, seconds = group[0], sum((_seconds(line) for line in group), Fraction(0))
    prices, descriptions = ({getattr(line, name) for line in group} for name in ("unit_price", "description"))
    projects = {line.project for line in group}
    return DocumentLine(
        description=first.description
        if len(descriptions) == 1
        else _("{lines} lines of {kinds} kinds").format(lines=len(group), kinds=len(descriptions)),
        project=_("{count} projects").format(count=len(projects)) if len(projects) > 1 else first.project,
        quantity=hours_text(seconds) if seconds else "",
        unit=_(plural(first.unit)) if seconds else "",
        unit_price=price_text(first.unit_price, invoice.currency) if seconds and len(prices) == 1 else "",
        amount=_minor(sum(line.amount for line in group), invoice.currency),
        service_period=_service(first, invoice),
    )


def _line(line: InvoiceLine, invoice: Invoice) -> DocumentLine:
    seconds = _seconds(line)
    return DocumentLine(
        description=line.description,
        project=line.project,
        quantity=hours_text(seconds) if seconds else "",
        unit=_(plural(line.unit)) if seconds else "",
        unit_price=price_text(line.unit_price, invoice.currency) if seconds else "",
        amount=_minor(line.amount, invoice.currency),
        service_period=_service(line, invoice),
        detail=detail(line, invoice.currency),
    )


def _service(line: InvoiceLine, invoice: Invoice) -> str:
    """Where it is another period than the document's."""
    service = line.service_period
    if not line.correction and service.start < invoice.period_end:
        return ""
    return period_text(service.start, service.end, service.timezone)


def _seconds(line: InvoiceLine) -> Fraction:
    return Fraction(int(line.seconds_num), line.seconds_den)


def party_of(frozen: dict[str, str]) -> Party:
    return Party(
        name=frozen["name"],
        address_lines=address_lines(frozen),
        country=country_name(frozen.get("country", "")),
        vat_id=frozen["vat_id"],
        email=frozen["email"],
        registration=frozen.get("registration", ""),
    )


def _notes(invoice: Invoice, *, summed: bool) -> str:
    fixed = Evidence.objects.filter(invoice=invoice).values_list("digest", flat=True).first()
    digest = [_("SHA-256 of its evidence: {digest}").format(digest=fixed)] if fixed else []
    if invoice.kind == DocumentKind.CREDIT_NOTE:
        sentences = [
            invoice.reason,
            _("Taxes are those at which {invoice} was issued.").format(invoice=invoice.original),
        ]
        return "\n".join(sentences + digest)
    notes = [_("The lines are summed over projects here; the portal has each of them.")] if summed else []
    notes.append(
        _("Each line opens to the jobs behind it in the portal, where it can be recomputed to the second.")
    )
    if zone := zone_note(invoice):
        notes.append(zone)
    if drawn := drawn_text(invoice):
        notes.append(drawn)
    if invoice.terms.get("incomplete"):
        text = _("Issued before all usage was read: {incomplete}")
        notes.append(text.format(incomplete=invoice.terms["incomplete"]))
    return "\n".join(notes + digest)


def _minor(amount: int, currency: str) -> str:
    return money_text(Money.from_minor(amount, currency))
