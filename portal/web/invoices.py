"""A tenant's invoices, one invoice, and the jobs behind its lines."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import Http404, HttpResponse

from billing.catalog import line_descriptions
from billing.documents import build
from billing.documents.parties import address_lines
from billing.models import DocumentKind, Invoice, InvoiceLine, InvoiceState, InvoiceTax, LineKind, Notice
from billing.queries import invoices as reading
from billing.queries import line_usage
from billing.queries.invoices import Detail
from billing.queries.line_usage import Cursor, JobOnLine, Page
from billing.receivables.settlement import Settlement
from billing.rules.bank_details import BankDetails, bank_details, drawn
from billing.rules.formatting import country_name
from billing.rules.meters import Meter, PerUnit
from billing.rules.money import Money
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.downloads import found_line
from portal.web.pay_offers import offer, open_offer
from portal.web.payment import moved_by, refused_addresses
from portal.web.shapes import (
    INVOICE_BADGES,
    BankTransfer,
    Fact,
    InvoicePage,
    Line,
    LineGroup,
    LineJob,
    LinePage,
    NoticeRow,
    Party,
    Payment,
    Related,
)


@tenant_page(Action.READ_INVOICES, area="invoices")
def invoices(request: TenantRequest) -> HttpResponse:
    after = request.GET.get("before", "")
    rows, more = reading.newest(request.tenant, on=request.today, after=after)
    to_pay, owed_back = reading.outstanding(request.tenant)
    page = {
        "rows": rows,
        "older": urlencode({"before": more}) if more else "",
        "to_pay": to_pay,
        "owed_back": owed_back,
        "offer": open_offer(request, to_pay) if not after else None,
        "refused": refused_addresses(request.tenant) if not after else (),
    }
    return answer(request, request.frame, page, whole="tenant/invoices.html")


@tenant_page(Action.READ_INVOICES, area="invoices")
def invoice(request: TenantRequest, number: str) -> HttpResponse:
    return answer(request, request.frame, _page(request, number), whole="tenant/invoice.html")


@tenant_page(Action.READ_INVOICES, area="invoices")
def line(request: TenantRequest, number: str, position: int) -> HttpResponse:
    page = _line_page(request, number, position, request.GET.get("before", ""))
    return answer(request, request.frame, page, whole="tenant/line.html", part="tenant/_line_jobs.html")


def _page(request: TenantRequest, number: str) -> InvoicePage:
    try:
        detail = reading.detail(request.tenant, number, on=request.today)
    except Invoice.DoesNotExist as missing:
        raise Http404("no such invoice") from missing
    page = shown(detail)
    return replace(page, offer=offer(request, detail.invoice, detail.balance, due=bool(page.due)))


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
        legal=tuple(dict.fromkeys(tax.reason for tax in _told(detail) if tax.reason)),
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
        what=f"{notice.get_kind_display()} {notice.told.get('number', '')}".strip(),
        when=say.day(notice.sent_at.astimezone(zone).date()) if notice.sent_at else "",
        to=", ".join(notice.to) or "an address that was erased",
    )


def _drawn(detail: Detail) -> tuple[Payment, ...]:
    return tuple(
        Payment(
            date=grant.why or grant.key,
            method=f"Good until {say.day(grant.expires_on - timedelta(days=1))}"
            if grant.expires_on
            else "Without an end",
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
    for each in detail.lines:
        order.setdefault(each.project, len(order))
    lines = sorted(detail.lines, key=lambda each: order[each.project])
    return tuple(
        LineGroup(
            project=project or "Of the whole account",
            subtotal=say.minor(sum(each.amount for each in group), currency),
            lines=tuple(
                _shown(
                    each,
                    currency,
                    _behind(each, detail.jobs.get(each.position, 0)),
                )
                for each in group
            ),
        )
        for project, group in (
            (name, list(lines)) for name, lines in groupby(lines, lambda each: each.project)
        )
    )


def _behind(row: InvoiceLine, jobs: int) -> str:
    """What a line opens to: its jobs, how it is computed, or "" for nothing."""
    if row.seconds_num and row.used_by() is None:
        return say.counted(jobs, "job")
    return "how" if row.terms or row.seconds_num else ""


def _shown(row: InvoiceLine, currency: str, jobs: str) -> Line:
    seconds = _seconds(row)
    prefix = "correction of " if row.kind != LineKind.CREDIT else ""
    if row.first_charge:
        prefix = "for "
    ahead = row.kind in TERMS and row.service_period.start >= row.invoice.period_end
    details = [
        f"{prefix}{say.period(row.service_period)}" if row.correction or row.original_id else "",
        f"in advance for {say.period(row.service_period)}" if ahead else "",
        line_descriptions.detail(row, currency),
    ]
    return Line(
        position=row.position,
        description=row.description,
        detail="; ".join(each for each in details if each),
        quantity=say.long_hours(seconds) if seconds else "",
        unit=f"{row.unit}s" if seconds else "",
        unit_price=say.price(row.unit_price, currency) if seconds else "",
        amount=say.minor(row.amount, currency),
        jobs=jobs,
    )


def _facts(row: Invoice) -> tuple[Fact, ...]:
    facts = {
        "Invoice date": say.day(row.issued_on) if row.issued_on else "",
        "Service period": say.span(row.period_start, row.period_end, row.timezone),
        "Due": say.day(row.due_on) if row.due_on and row.kind != DocumentKind.CREDIT_NOTE else "",
        "Customer": row.buyer.get("slug", ""),
        "Your reference": row.buyer.get("buyer_reference", ""),
        "Purchase order": row.buyer.get("purchase_order", ""),
    }
    return tuple(Fact(label=label, value=value) for label, value in facts.items() if value)


def _sums(detail: Detail) -> tuple[Fact, ...]:
    row = detail.invoice
    sums = [Fact(label="Subtotal", value=say.minor(row.subtotal, row.currency))]
    for tax in _told(detail):
        label = build.tax_label(tax, row, percent=" %")
        sums.append(Fact(label=label, value=say.minor(tax.tax, row.currency)))
    return tuple(sums)


def _told(detail: Detail) -> list[InvoiceTax]:
    return [tax for tax in detail.taxes if tax.rate or tax.reason]


def _related(detail: Detail) -> tuple[Related, ...]:
    row = detail.invoice
    one = {"Credits invoice": row.original, "Replaces": row.replaces, "Replaced by": detail.replaced_by}
    others = [
        Related(label=label, number=other.number or "", amount="") for label, other in one.items() if other
    ]
    notes = [
        Related(label="Credit note", number=note.number or "", amount=say.minor(note.total, note.currency))
        for note in detail.notes
    ]
    return (*others, *notes)


def _party(frozen: dict[str, str]) -> Party:
    lines = list(address_lines(frozen))
    if frozen.get("country"):
        lines.append(country_name(frozen["country"]))
    if frozen.get("vat_id"):
        lines.append(f"VAT id {frozen['vat_id']}")
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


SAID = {
    "disputed": "A payment of this invoice is disputed at the bank. Until that is decided, nothing is charged.",
    "charged_back": "The bank took a payment of this invoice back, so that it is to be paid again.",
}


def _note(detail: Detail) -> str:
    row = detail.invoice
    if row.state == InvoiceState.VOID:
        why = f" {detail.voiding.reason}" if detail.voiding else ""
        return f"This invoice is void: it is not to be paid.{why}"
    if detail.balance.settlement in SAID:
        return SAID[detail.balance.settlement]
    if row.reason:
        return row.reason
    incomplete = row.terms.get("incomplete", "")
    zone = build.zone_note(row)
    if zone and not incomplete:
        return zone
    return (
        f"Issued before all usage was read: {incomplete} What came later follows as a correction."
        if incomplete
        else ""
    )


def _line_page(request: TenantRequest, number: str, position: int, before: str) -> LinePage:
    row = found_line(request, number, position)
    if not row.seconds_num or not row.meter:
        raise Http404("a line without jobs")
    currency = row.invoice.currency
    apart = row.used_by() is not None
    behind_it = Page([], 0, None) if apart else line_usage.jobs(row, after=_cursor(before))
    whole = _seconds(row)
    unit = row.unit.replace("hour", "seconds")
    older = ""
    if (more := behind_it.more) is not None:
        share = f"{more.share.numerator}.{more.share.denominator}"
        older = "?" + urlencode({"before": f"{more.rank:f}_{more.record_id}_{share}"})
    return LinePage(
        number=number,
        line=_shown(row, currency, _behind(row, behind_it.count)),
        project=row.project or row.invoice.buyer["name"],
        seconds=f"{say.seconds(whole)} {unit}" if unit and not apart else "",
        apart="Another tenant used it: its jobs are on that one’s pages, for its own members."
        if apart
        else "",
        formula=line_descriptions.computation(row, currency)
        if row.terms
        else _formula(row, whole, unit, currency),
        jobs=tuple(_line_job(job, row, whole, request.zone) for job in behind_it.jobs),
        more=older,
    )


def _formula(row: InvoiceLine, whole: Fraction, unit: str, currency: str) -> str:
    exact = PerUnit(line_usage.hour_price(row)).amount(whole, currency)
    return (
        f"{say.seconds(whole)} {unit} ÷ 3,600 × {say.price(row.unit_price, currency)} = "
        f"{say.exact_money(exact)}, on the invoice {say.minor(row.amount, currency)}"
    )


def _line_job(job: JobOnLine, row: InvoiceLine, whole: Fraction, zone: ZoneInfo) -> LineJob:
    seconds = job.resource_seconds
    return LineJob(
        record=job.record_id,
        left=job.left,
        job_id=job.job_id,
        user=job.user,
        since=say.second(job.service_from, zone),
        until=say.second(job.service_to, zone),
        held=say.whole(job.units),
        counted_in=say.counted_in(job.share, Meter(row.meter)),
        share=say.percent(seconds, whole),
        amount=say.exact_money(PerUnit(line_usage.hour_price(row)).amount(seconds, row.invoice.currency)),
    )


def _cursor(text: str) -> Cursor | None:
    """A text that is no cursor begins at the top, as without one."""
    match = re.fullmatch(r"(-?[0-9]{1,24}\.[0-9]{6})_([0-9]{1,18})_([0-9]{1,9})\.([1-9][0-9]{0,8})", text)
    if not match:
        return None
    return Cursor(Decimal(match[1]), int(match[2]), Fraction(int(match[3]), int(match[4])))


def _seconds(row: InvoiceLine) -> Fraction:
    return Fraction(int(row.seconds_num), row.seconds_den)
