"""A tenant's invoices, one invoice, and the jobs behind its lines."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase

from billing.documents import build
from billing.documents import pdf as documents
from billing.documents.typesetting import TypesettingError
from billing.models import Invoice, InvoiceLine
from billing.reading import behind
from billing.reading import invoices as reading
from billing.reading.behind import Cursor, Held
from billing.reading.invoices import Detail, Standing
from billing.rules.pricing import Meter, PerUnit
from portal.tenants.access import Action
from portal.web import format as say
from portal.web.shapes import (
    INVOICE_BADGES,
    BankTransfer,
    Fact,
    InvoicePage,
    InvoiceRow,
    InvoicesPage,
    Line,
    LineGroup,
    LineJob,
    LinePage,
    Party,
    Payment,
)
from portal.web.visit import ScopedStream, Visit, answer, tenant_page


@tenant_page(Action.READ_INVOICES, area="invoices")
def invoices(request: HttpRequest, visit: Visit) -> HttpResponse:
    page = _list(visit, request.GET.get("before", ""))
    return answer(request, visit.shell, page, whole="tenant/invoices.html")


@tenant_page(Action.READ_INVOICES, area="invoices")
def invoice(request: HttpRequest, visit: Visit, number: str) -> HttpResponse:
    return answer(request, visit.shell, _page(visit, number), whole="tenant/invoice.html")


@tenant_page(Action.READ_INVOICES, area="invoices")
def pdf(request: HttpRequest, visit: Visit, number: str) -> HttpResponse:
    del request
    found = _invoice(visit, number)
    try:
        content = reading.document(found) or documents.render(build.document_of(found))
    except TypesettingError as error:
        return HttpResponse(str(error), status=503, content_type="text/plain; charset=utf-8")
    return HttpResponse(content, content_type="application/pdf", headers=_file(f"{number}.pdf", "inline"))


@tenant_page(Action.READ_INVOICES, area="invoices")
def csv(request: HttpRequest, visit: Visit, number: str) -> HttpResponseBase:
    del request
    found = _invoice(visit, number)
    lines = list(found.lines.select_related("service_period").order_by("position"))
    return _table(visit, found, lines, f"{number}.csv")


@tenant_page(Action.READ_INVOICES, area="invoices")
def line(request: HttpRequest, visit: Visit, number: str, position: int) -> HttpResponse:
    page = _line_page(visit, number, position, request.GET.get("before", ""))
    return answer(request, visit.shell, page, whole="tenant/line.html", part="tenant/_line_jobs.html")


@tenant_page(Action.READ_INVOICES, area="invoices")
def line_csv(request: HttpRequest, visit: Visit, number: str, position: int) -> HttpResponseBase:
    del request
    found = _line(visit, number, position)
    return _table(visit, found.invoice, [found], f"{number}-{position}.csv")


def invoice_row(found: Standing) -> InvoiceRow:
    """An invoice of a list, as shown."""
    row, stand = found.invoice, found.balance
    return InvoiceRow(
        number=row.number or "",
        period=say.span(row.period_start, row.period_end, row.timezone),
        issued=say.day(row.issued_on) if row.issued_on else "",
        due=say.day(row.due_on) if row.due_on else "",
        badge=INVOICE_BADGES[stand.settlement.value],
        total=say.minor(row.total, row.currency),
        open=say.money(stand.due) if stand.settlement in OPEN else "",
    )


OPEN = ("due", "past_due")


def _list(visit: Visit, after: str) -> InvoicesPage:
    rows, more = reading.newest(visit.tenant, on=visit.today, after=after.replace("\0", ""))
    to_pay = reading.open_sums(visit.tenant)
    return InvoicesPage(
        rows=tuple(invoice_row(row) for row in rows),
        older=f"?{urlencode({'before': more})}" if more else "",
        open=say.sums(to_pay.sums) if to_pay.count else "",
    )


def _page(visit: Visit, number: str) -> InvoicePage:
    try:
        found = reading.detail(visit.tenant, number, on=visit.today)
    except Invoice.DoesNotExist as missing:
        raise Http404("no such invoice") from missing
    row, stand = found.invoice, found.balance
    is_open = stand.settlement in OPEN
    return InvoicePage(
        number=number,
        badge=INVOICE_BADGES[stand.settlement.value],
        seller=_party(row.seller),
        buyer=_party(row.buyer),
        facts=_facts(row),
        groups=_groups(found),
        sums=_sums(row),
        total=say.minor(row.total, row.currency),
        paid=say.money(stand.paid) if stand.paid.amount else "",
        due=say.money(stand.due) if is_open else "",
        payments=tuple(
            Payment(
                date=say.day(payment.received_on),
                method="Bank transfer",
                reference=payment.reference,
                amount=say.minor(payment.amount, row.currency),
            )
            for payment in found.payments
        ),
        transfer=_transfer(row, say.money(stand.due)) if is_open else None,
        note=_note(row),
    )


def _groups(found: Detail) -> tuple[LineGroup, ...]:
    """The lines by project, each group with its sum, in the invoice's order."""
    currency = found.invoice.currency
    order: dict[str, int] = {}
    for each in found.lines:
        order.setdefault(each.project, len(order))
    lines = sorted(found.lines, key=lambda each: order[each.project])
    return tuple(
        LineGroup(
            project=project,
            subtotal=say.minor(sum(each.amount for each in group), currency),
            lines=tuple(
                _shown(each, currency, say.counted(found.jobs.get(each.position, 0), "job")) for each in group
            ),
        )
        for project, group in (
            (name, list(lines)) for name, lines in groupby(lines, lambda each: each.project)
        )
    )


def _shown(row: InvoiceLine, currency: str, jobs: str) -> Line:
    service = row.service_period
    detail = f"correction of {say.period(service)}" if row.correction else ""
    return Line(
        position=row.position,
        description=row.description,
        detail=detail,
        quantity=say.long_hours(_seconds(row)),
        unit=f"{row.unit}s",
        unit_price=say.price(row.unit_price, currency),
        amount=say.minor(row.amount, currency),
        jobs=jobs,
    )


def _facts(row: Invoice) -> tuple[Fact, ...]:
    facts = {
        "Invoice date": say.day(row.issued_on) if row.issued_on else "",
        "Service period": say.span(row.period_start, row.period_end, row.timezone),
        "Due": say.day(row.due_on) if row.due_on else "",
        "Customer": row.buyer.get("slug", ""),
        "Purchase order": row.buyer.get("purchase_order", ""),
    }
    return tuple(Fact(label=label, value=value) for label, value in facts.items() if value)


def _sums(row: Invoice) -> tuple[Fact, ...]:
    sums = [Fact(label="Subtotal", value=say.minor(row.subtotal, row.currency))]
    if row.tax_rate:
        label = f"{row.tax_name} {row.tax_rate.normalize():f} %"
        sums.append(Fact(label=label, value=say.minor(row.tax, row.currency)))
    return tuple(sums)


def _party(frozen: dict[str, str]) -> Party:
    lines = [line for line in frozen.get("address", "").splitlines() if line.strip()]
    if frozen.get("vat_id"):
        lines.append(f"VAT id {frozen['vat_id']}")
    return Party(name=frozen["name"], lines=tuple(lines))


def _transfer(row: Invoice, amount: str) -> BankTransfer | None:
    seller = row.seller
    if not seller.get("iban"):
        return None
    return BankTransfer(
        amount=amount,
        by=say.day(row.due_on) if row.due_on else "",
        holder=seller["name"],
        iban=" ".join(re.findall(".{1,4}", seller["iban"].replace(" ", ""))),
        bic=seller.get("bic", ""),
        bank="",
        reference=row.number or "",
    )


def _note(row: Invoice) -> str:
    if row.state == "void":
        return "This invoice is void: it is not to be paid."
    incomplete = row.terms.get("incomplete", "")
    return (
        f"Issued before all usage was read: {incomplete} What came later follows as a correction."
        if incomplete
        else ""
    )


def _line_page(visit: Visit, number: str, position: int, before: str) -> LinePage:
    row = _line(visit, number, position)
    currency = row.invoice.currency
    behind_it = behind.jobs(row, after=_cursor(before))
    whole = _seconds(row)
    unit = Meter(row.meter).unit.replace("hour", "seconds")
    exact = PerUnit(row.unit_price).amount(whole, currency)
    older = ""
    if (more := behind_it.more) is not None:
        share = f"{more.share.numerator}.{more.share.denominator}"
        older = "?" + urlencode({"before": f"{more.rank:f}_{more.record_id}_{share}"})
    return LinePage(
        number=number,
        line=_shown(row, currency, say.counted(behind_it.count, "job")),
        project=row.project,
        seconds=f"{say.seconds(whole)} {unit}",
        formula=(
            f"{say.seconds(whole)} {unit} ÷ 3,600 × {say.price(row.unit_price, currency)} = "
            f"{say.exact_money(exact)}, on the invoice {say.minor(row.amount, currency)}"
        ),
        jobs=tuple(_line_job(job, row, whole, visit.zone) for job in behind_it.jobs),
        more=older,
    )


def _line_job(job: Held, row: InvoiceLine, whole: Fraction, zone: ZoneInfo) -> LineJob:
    seconds = job.resource_seconds
    return LineJob(
        record=job.record_id,
        job_id=job.job_id,
        user=job.user,
        since=say.second(job.service_from, zone),
        until=say.second(job.service_to, zone),
        held=say.whole(job.units),
        counted_in=say.counted_in(job.share, Meter(row.meter)),
        share=say.percent(seconds, whole),
        amount=say.exact_money(PerUnit(row.unit_price).amount(seconds, row.invoice.currency)),
    )


def _cursor(text: str) -> Cursor | None:
    """A text that is no cursor begins at the top, as without one."""
    match = re.fullmatch(r"(-?[0-9]{1,24}\.[0-9]{6})_([0-9]{1,18})_([0-9]{1,9})\.([1-9][0-9]{0,8})", text)
    if not match:
        return None
    return Cursor(Decimal(match[1]), int(match[2]), Fraction(int(match[3]), int(match[4])))


def _invoice(visit: Visit, number: str) -> Invoice:
    try:
        return reading.get(visit.tenant, number)
    except Invoice.DoesNotExist as missing:
        raise Http404("no such invoice") from missing


def _line(visit: Visit, number: str, position: int) -> InvoiceLine:
    try:
        return reading.line(visit.tenant, number, position)
    except InvoiceLine.DoesNotExist as missing:
        raise Http404("no such line") from missing


def _table(visit: Visit, found: Invoice, lines: list[InvoiceLine], name: str) -> HttpResponseBase:
    pieces = behind.as_csv(found, lines)
    return ScopedStream(
        visit, pieces, content_type="text/csv; charset=utf-8", headers=_file(name, "attachment")
    )


def _file(name: str, kind: str) -> dict[str, str]:
    return {"Content-Disposition": f'{kind}; filename="{name}"', "X-Content-Type-Options": "nosniff"}


def _seconds(row: InvoiceLine) -> Fraction:
    return Fraction(int(row.seconds_num), row.seconds_den)
