"""A tenant's invoices, one invoice, and the jobs behind its lines."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.catalog import line_descriptions
from billing.models import DocumentKind, Invoice, InvoiceLine
from billing.payments import payment_links
from billing.queries import invoices as reading
from billing.queries import line_usage
from billing.queries.line_usage import Cursor, Page
from billing.rules.meters import PerUnit, is_built_in, meter_of
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.budget_periods import list_lent
from portal.web.downloads import get_line
from portal.web.invoice_document import InvoicePage, opens_to, seconds_of, shown, shown_line
from portal.web.pay_offers import offer, open_offer
from portal.web.payment import refused_addresses
from portal.web.payment_links import links_of

EXACT_UNITS = (
    *(gettext_noop("GPU-seconds"), gettext_noop("core-seconds")),
    *(gettext_noop("GiB-seconds"), gettext_noop("billing-seconds")),
)
"""What the units of lines become where the seconds behind their hours are shown."""


@tenant_page(Action.READ_INVOICES, area="invoices")
def invoices(request: TenantRequest) -> HttpResponse:
    after = request.GET.get("before", "")
    rows, more = reading.newest(request.tenant, on=request.today, after=after)
    to_pay, owed_back, _ = reading.outstanding(request.tenant)
    page = {
        "rows": rows,
        "older": urlencode({"before": more}) if more else "",
        "to_pay": to_pay,
        "owed_back": owed_back,
        "offer": open_offer(request, to_pay) if not after else None,
        "month": f"{rows[0].invoice.period_start.astimezone(request.zone):%Y-%m}" if rows else "",
        "refused": refused_addresses(request.tenant) if not after else (),
    }
    return answer(request, request.frame, page, whole="tenant/invoices.html")


@tenant_page(Action.READ_INVOICES, area="invoices")
def invoice(request: TenantRequest, number: str) -> HttpResponse:
    return answer(request, request.frame, _page(request, number), whole="tenant/invoice.html")


@tenant_page(Action.READ_INVOICES, area="invoices")
def line(request: TenantRequest, number: str, position: int) -> HttpResponse:
    page = _line_page(request, number, position)
    return answer(request, request.frame, page, whole="tenant/line.html", part="tenant/_line_jobs.html")


def _page(request: TenantRequest, number: str) -> InvoicePage:
    try:
        detail = reading.detail(request.tenant, number, on=request.today)
    except Invoice.DoesNotExist as missing:
        raise Http404("no such invoice") from missing
    page, row = shown(detail), detail.invoice
    return replace(
        page,
        lent=list_lent(request, since=row.period_start, until=row.period_end)
        if row.kind == DocumentKind.INVOICE
        else (),
        offer=offer(request, detail.invoice, detail.balance, due=bool(page.due)),
        links=links_of(request, detail.invoice, due=bool(page.due)),
        link_days=payment_links.DAYS,
        zone=request.zone,
    )


def _line_page(request: TenantRequest, number: str, position: int) -> dict[str, object]:
    row = get_line(request, number, position)
    if not row.seconds_num or not row.meter:
        raise Http404("a line without jobs")
    currency, whole = row.invoice.currency, seconds_of(row)
    apart = row.used_by() is not None
    usage = Page([], 0, None)
    if not apart:
        usage = line_usage.jobs(row, after=_cursor(request.GET.get("before", "")))
    sums = not is_built_in(row.meter)
    unit = "" if sums else _(row.unit.replace("hour", "seconds"))
    price = PerUnit(line_usage.hour_price(row))
    return {
        "number": number,
        "line": shown_line(row, currency, opens_to(row, usage.count)),
        "project": row.project or row.invoice.buyer["name"],
        "seconds": f"{say.seconds(whole)} {unit}" if unit and not apart else "",
        "whole": whole,
        "meter": meter_of(row.meter, unit=row.unit),
        "sums": sums and not apart,
        "apart": apart,
        "formula": line_descriptions.computation(row, currency)
        if row.terms
        else _formula(row, whole, unit, currency),
        "jobs": [(job, price.amount(job.resource_seconds, currency)) for job in usage.jobs],
        "more": _older(usage.more) if usage.more else "",
    }


def _older(cursor: Cursor) -> str:
    share = f"{cursor.share.numerator}.{cursor.share.denominator}"
    return urlencode({"before": f"{cursor.rank:f}_{cursor.record_id}_{share}"})


def _formula(row: InvoiceLine, whole: Fraction, unit: str, currency: str) -> str:
    exact = PerUnit(line_usage.hour_price(row)).amount(whole, currency)
    quantity = (
        f"{say.seconds(whole)} {unit} ÷ {say.whole(3600)}"
        if unit
        else f"{say.fraction(whole / 3600)} {_(row.unit)}"
    )
    return _("{quantity} × {price} = {exact}, on the invoice {amount}").format(
        quantity=quantity,
        price=say.price(row.unit_price, currency),
        exact=say.exact_money(exact),
        amount=say.minor(row.amount, currency),
    )


def _cursor(text: str) -> Cursor | None:
    """A text that is no cursor begins at the top, as without one."""
    match = re.fullmatch(r"(-?[0-9]{1,24}\.[0-9]{6})_([0-9]{1,18})_([0-9]{1,9})\.([1-9][0-9]{0,8})", text)
    if not match:
        return None
    return Cursor(Decimal(match[1]), int(match[2]), Fraction(int(match[3]), int(match[4])))
