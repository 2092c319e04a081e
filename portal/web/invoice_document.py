"""An invoice or credit note as its page shows it, and how it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from itertools import groupby
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.catalog import line_descriptions
from billing.documents import build
from billing.documents.parties import address_lines
from billing.models import DocumentKind, Invoice, InvoiceLine, InvoiceState, InvoiceTax, LineKind, Notice
from billing.queries import invoices as reading
from billing.queries.invoices import Detail
from billing.receivables.settlement import Settlement
from billing.rules.bank_details import BankDetails, bank_details, drawn
from billing.rules.formatting import country_name
from billing.rules.meters import is_built_in, plural
from billing.rules.money import Money
from portal.web import format as say
from portal.web.badges import INVOICE_BADGES, Badge
from portal.web.payment import moved_by


@dataclass(frozen=True, kw_only=True)
class Fact:
    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Party:
    name: str
    lines: tuple[str, ...]  # address, then tax id


@dataclass(frozen=True, kw_only=True)
class Line:
    position: int  # key in the line's address
    description: str  # "GPU time, H100"
    detail: str  # selectors or service period, "" if none
    quantity: str
    unit: str  # "GPU-hours"
    unit_price: str
    amount: str
    jobs: str  # "1,204 jobs"; "" where the line is an amount alone
    credited_job: int | None = None  # whose hardware failed, where the line is a service credit


@dataclass(frozen=True, kw_only=True)
class LineGroup:
    project: str
    subtotal: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class BankTransfer:
    """How to pay; fields that the seller has not set are ""."""

    amount: str
    by: str
    holder: str
    iban: str
    bic: str
    reference: str
    code: str  # a QR code that banking apps read, as a path of SVG
    code_side: int  # of it, in places


@dataclass(frozen=True, kw_only=True)
class Payment:
    date: str
    method: str
    reference: str
    amount: str


@dataclass(frozen=True, kw_only=True)
class NoticeRow:
    what: str  # "Reminder 2"
    when: str  # "3 Mar 2026"
    to: str  # addresses


@dataclass(frozen=True, kw_only=True)
class Related:
    """Another document that this one stands in relation to."""

    label: str  # "Credits invoice"
    number: str
    amount: str  # "" where it does not matter here


@dataclass(frozen=True, kw_only=True)
class InvoicePage:
    title: str  # "Credit note"
    number: str
    badge: Badge
    seller: Party
    buyer: Party
    facts: tuple[Fact, ...]  # invoice date, service period, due date, customer number, purchase order
    groups: tuple[LineGroup, ...]
    sums: tuple[Fact, ...]  # subtotal, each tax
    legal: tuple[str, ...] = ()  # why no tax is charged, a sentence each
    total: str
    from_wallet: str  # "" if nothing was
    drawn: tuple[Payment, ...]  # by grant, what the wallet paid when it was issued
    paid: str  # "" if nothing was
    credited: str  # "" if nothing was
    written_off: str = ""  # "" if nothing is
    due: str  # "" if nothing is
    processing: bool = False  # a payment of what is due is under way
    refund: str  # what is to be paid back, "" if nothing is
    payments: tuple[Payment, ...] = ()
    notices: tuple[NoticeRow, ...] = ()  # the newest first
    related: tuple[Related, ...] = ()
    transfer: BankTransfer | None = None  # while something is due
    lent: Sequence[object] = ()  # by pool, what it lent to projects in the service period
    note: str = ""  # why it is void, what it corrects
    links: Sequence[object] | None = None  # payment links that are valid; None: not this visitor's to see
    link_days: tuple[int, ...] = ()  # for how many days a new one can be valid
    zone: ZoneInfo | None = None  # the tenant's
    offer: Mapping[str, object] | None = None  # while something is due, and cards are taken
    evidence: str = (
        ""  # the SHA-256 of what stands behind it; "" until that is fixed, a moment after it is issued
    )
    einvoice: bool = False  # it has one


def shown(detail: Detail) -> InvoicePage:
    """The document, and how it stands."""
    row, stand = detail.invoice, detail.balance
    is_open, processing = stand.settlement in reading.OPEN, stand.settlement is Settlement.PROCESSING
    nothing = Money.zero(row.currency)
    moved = moved_by(row, detail.payments)
    return InvoicePage(
        title=build.title_of(row.kind, corrects=any(line.corrects for line in detail.lines)),
        number=row.number or "",
        badge=INVOICE_BADGES[stand.settlement.value],
        seller=_party(row.seller),
        buyer=_party(row.buyer),
        facts=_facts(row),
        groups=_groups(detail),
        sums=_sums(detail),
        legal=tuple(dict.fromkeys(_(tax.reason) for tax in _shown_taxes(detail) if tax.reason)),
        total=say.minor(row.total, row.currency),
        from_wallet=say.money(stand.from_wallet) if stand.from_wallet.amount else "",
        drawn=_drawn(detail),
        paid=say.money(stand.paid) if stand.paid.amount else "",
        credited=say.money(stand.credited) if detail.notes else "",
        written_off=say.money(stand.written_off) if stand.written_off.amount else "",
        due=say.money(stand.due) if is_open else "",
        processing=processing,
        refund=say.money(-stand.due) if stand.due < nothing else "",
        payments=tuple(
            Payment(
                date=say.day(payment.received_on),
                method=moved[payment.pk][0],
                reference=moved[payment.pk][1],
                amount=say.minor(payment.amount, row.currency),
            )
            for payment in detail.payments
        ),
        transfer=_transfer(row, stand.due) if is_open and not processing else None,
        notices=tuple(_written(notice, ZoneInfo(row.timezone)) for notice in detail.notices),
        related=_related(detail),
        note=_note(detail),
        evidence=detail.evidence,
        einvoice=detail.einvoice,
    )


def _written(notice: Notice, zone: ZoneInfo) -> NoticeRow:
    return NoticeRow(
        what=f"{notice.get_kind_display()} {notice.details.get('number', '')}".strip(),
        when=say.day(notice.sent_at.astimezone(zone).date()) if notice.sent_at else "",
        to=", ".join(notice.to) or _("an address that was erased"),
    )


def _drawn(detail: Detail) -> tuple[Payment, ...]:
    return tuple(
        Payment(
            date=grant.reason or grant.key,
            method=_("Good until {day}").format(day=say.day(grant.expires_on - timedelta(days=1)))
            if grant.expires_on
            else _("Without an end"),
            reference="",
            amount=say.minor(amount, detail.invoice.currency),
        )
        for grant, amount in detail.drawn
    )


TERMS = (LineKind.FEE, LineKind.COMMITMENT, LineKind.DISCOUNT)


def _groups(detail: Detail) -> tuple[LineGroup, ...]:
    """The lines by project, each group with its sum, in the invoice's order."""
    currency = detail.invoice.currency
    order: dict[str, int] = {}
    for row in detail.lines:
        order.setdefault(row.project, len(order))
    lines = sorted(detail.lines, key=lambda row: order[row.project])
    return tuple(
        LineGroup(
            project=project or _("Of the whole account"),
            subtotal=say.minor(sum(row.amount for row in group), currency),
            lines=tuple(
                shown_line(
                    row,
                    currency,
                    opens_to(row, detail.jobs.get(row.position, 0)),
                    detail.credited_jobs.get(row.position),
                )
                for row in group
            ),
        )
        for project, group in ((name, list(lines)) for name, lines in groupby(lines, lambda row: row.project))
    )


def opens_to(row: InvoiceLine, jobs: int) -> str:
    """What a line opens to: its jobs, how it is computed, or "" for nothing."""
    if row.seconds_num and row.used_by() is None:
        return say.counted(jobs, "job" if is_built_in(row.meter) else "sum")
    return "how" if row.terms or row.seconds_num else ""


def shown_line(row: InvoiceLine, currency: str, jobs: str, credited_job: int | None = None) -> Line:
    seconds = seconds_of(row)
    span = "{period}" if row.kind == LineKind.CREDIT else _("correction of {period}")
    if row.first_charge:
        span = _("for {period}")
    ahead = row.kind in TERMS and row.service_period.start >= row.invoice.period_end
    details = [
        span.format(period=say.period(row.service_period)) if row.correction or row.original_id else "",
        _("in advance for {period}").format(period=say.period(row.service_period)) if ahead else "",
        line_descriptions.detail(row, currency),
    ]
    return Line(
        position=row.position,
        description=row.description,
        detail="; ".join(text for text in details if text),
        quantity=say.long_hours(seconds) if seconds else "",
        unit=_(plural(row.unit)) if seconds else "",
        unit_price=say.price(row.unit_price, currency) if seconds else "",
        amount=say.minor(row.amount, currency),
        jobs=jobs,
        credited_job=credited_job,
    )


def _facts(row: Invoice) -> tuple[Fact, ...]:
    facts = {
        _("Invoice date"): say.day(row.issued_on) if row.issued_on else "",
        _("Service period"): say.span(row.period_start, row.period_end, row.timezone),
        _("Due"): say.day(row.due_on) if row.due_on and row.kind != DocumentKind.CREDIT_NOTE else "",
        _("Customer"): row.buyer.get("slug", ""),
        _("Your reference"): row.buyer.get("buyer_reference", ""),
        _("Purchase order"): row.buyer.get("purchase_order", ""),
    }
    return tuple(Fact(label=label, value=value) for label, value in facts.items() if value)


def _sums(detail: Detail) -> tuple[Fact, ...]:
    row = detail.invoice
    sums = [Fact(label=_("Subtotal"), value=say.minor(row.subtotal, row.currency))]
    for tax in _shown_taxes(detail):
        label = build.tax_label(tax, row, percent=" %")
        sums.append(Fact(label=label, value=say.minor(tax.tax, row.currency)))
    return tuple(sums)


def _shown_taxes(detail: Detail) -> list[InvoiceTax]:
    return [tax for tax in detail.taxes if tax.rate or tax.reason]


def _related(detail: Detail) -> tuple[Related, ...]:
    row = detail.invoice
    one = {
        _("Credits invoice"): row.original,
        _("Replaces"): row.replaces,
        _("Replaced by"): detail.replaced_by,
    }
    others = [
        Related(label=label, number=other.number or "", amount="") for label, other in one.items() if other
    ]
    notes = [
        Related(label=_("Credit note"), number=note.number or "", amount=say.minor(note.total, note.currency))
        for note in detail.notes
    ]
    return (*others, *notes)


def _party(frozen: dict[str, str]) -> Party:
    lines = list(address_lines(frozen))
    if frozen.get("country"):
        lines.append(country_name(frozen["country"]))
    if frozen.get("vat_id"):
        lines.append(_("VAT id {vat_id}").format(vat_id=frozen["vat_id"]))
    return Party(name=frozen["name"], lines=tuple(lines))


def _transfer(row: Invoice, due: Money) -> BankTransfer | None:
    bank = bank_details(seller=row.seller, name=row.number or "", amount=due)
    if bank is None:
        return None
    return bank_transfer(bank, amount=say.money(due), by=say.day(row.due_on) if row.due_on else "")


def bank_transfer(bank: BankDetails, *, amount: str, by: str = "") -> BankTransfer:
    return BankTransfer(
        amount=amount,
        by=by,
        holder=bank.holder,
        iban=bank.iban,
        bic=bank.bic,
        reference=bank.reference,
        code=drawn(bank.code),
        code_side=len(bank.code),
    )


DISPUTE_NOTES = {
    "disputed": gettext_noop(
        "A payment of this invoice is disputed at the bank. Until that is decided, nothing is charged."
    ),
    "charged_back": gettext_noop(
        "The bank took a payment of this invoice back, so that it is to be paid again."
    ),
}


def _note(detail: Detail) -> str:
    row = detail.invoice
    if row.state == InvoiceState.VOID:
        why = f" {detail.voiding.reason}" if detail.voiding else ""
        return _("This invoice is void: it is not to be paid.") + why
    if detail.balance.settlement in DISPUTE_NOTES:
        return _(DISPUTE_NOTES[detail.balance.settlement])
    if row.reason:
        return row.reason
    incomplete = row.terms.get("incomplete", "")
    zone = build.zone_note(row)
    if zone and not incomplete:
        return zone
    text = _("Issued before all usage was read: {incomplete} What came later follows as a correction.")
    return text.format(incomplete=incomplete) if incomplete else ""


def seconds_of(row: InvoiceLine) -> Fraction:
    return Fraction(int(row.seconds_num), row.seconds_den)
