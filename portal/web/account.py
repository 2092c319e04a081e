"""A tenant's statement of account by year, and all documents of a year in one file, for its own bookkeeping."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO
from zipfile import ZIP_DEFLATED, ZipFile

from django.http import Http404, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _

from billing.documents.pdf import render_receipt
from billing.models import Invoice
from billing.queries import invoices as reading
from billing.reports.account_statement import AccountStatement, StatementRow, as_csv, load_statements
from billing.reports.receipts import load_receipts, payments_of
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from portal.web.access_decorators import ScopedStream, TenantRequest, answer, tenant_page

IN_MEMORY, PIECE = 1 << 20, 1 << 16  # bytes
MISSING = "not-rendered-yet.txt"


@tenant_page(Action.READ_INVOICES, area="invoices")
def account(request: TenantRequest) -> HttpResponse:
    year = _year(request)
    first, last = reading.years(request.tenant) or (request.today.year, request.today.year)
    statements = _load(request.tenant, year)
    page = {
        "year": year,
        "years": [number for number in range(max(last, request.today.year), first - 1, -1) if number != year],
        "statements": [(one, [(row, _label(row)) for row in one.rows]) for one in statements],
        "documents": reading.of_year(request.tenant, year).count() + len(payments_of(statements)),
    }
    return answer(request, request.frame, page, whole="tenant/account.html")


@tenant_page(Action.READ_INVOICES, area="invoices")
def account_csv(request: TenantRequest) -> HttpResponse:
    year = _year(request)
    name = f"{request.tenant.slug}-account-{year}.csv"
    return HttpResponse(
        b"".join(as_csv(_load(request.tenant, year))),
        content_type="text/csv; charset=utf-8",
        headers=_attached(name),
    )


@tenant_page(Action.READ_INVOICES, area="invoices")
def documents(request: TenantRequest) -> HttpResponseBase:
    """Each invoice and credit note of the year, with its e-invoice where it has one, a receipt of each payment, and
    the statement of account."""
    year = _year(request)
    rows = list(reading.of_year(request.tenant, year))
    with acting_scope(request.tenant):
        statements = load_statements(request.tenant, since=date(year, 1, 1), until=date(year + 1, 1, 1))
        receipts = load_receipts(request.tenant, statements)
    if not rows and not receipts:
        raise Http404("no documents in this year")
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the last piece
    try:
        with ZipFile(file, "w", ZIP_DEFLATED) as into:
            _write_documents(into, rows)
            for one in receipts:
                into.writestr(f"receipts/{one.name}.pdf", render_receipt(one.receipt))
            into.writestr("statement-of-account.csv", b"".join(as_csv(statements)))
    except BaseException:
        file.close()
        raise
    file.seek(0)
    name = f"{request.tenant.slug}-documents-{year}.zip"
    return ScopedStream(
        request.tenant, _pieces(file), content_type="application/zip", headers=_attached(name)
    )


def _write_documents(into: ZipFile, rows: list[Invoice]) -> None:
    """One query."""
    names = {row.pk: f"{row.number}".replace("/", "-") for row in rows}
    missing = dict(names)
    for pk, pdf, xml in reading.rendered(rows):
        name = missing.pop(pk)
        into.writestr(f"{name}.pdf", pdf)
        if xml is not None:
            into.writestr(f"{name}.xml", xml)
    if missing:
        text = _("Not rendered yet, so not in this file. Download it again in a few minutes:")
        into.writestr(MISSING, "\n".join([text, *missing.values(), ""]))


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        yield from iter(partial(file.read, PIECE), b"")


def _load(tenant: Tenant, year: int) -> list[AccountStatement]:
    with acting_scope(
        tenant
    ):  # some of it, as what became void, the pages of a tenant may not read themselves
        return load_statements(tenant, since=date(year, 1, 1), until=date(year + 1, 1, 1))


def _year(request: TenantRequest) -> int:
    """The year that the address names, by default the present one; 404 for what is none."""
    text = request.GET.get("year") or str(request.today.year)
    if not (text.isascii() and text.isdecimal() and len(text) == 4 and 1971 <= int(text) <= 8999):
        raise Http404("no such year")
    return int(text)


def _label(row: StatementRow) -> str:
    labels = {
        "invoice": _("Invoice"),
        "credit-note": _("Credit note"),
        "void": _("Void"),
        "payment": _("Payment") if row.amount < 0 else _("Paid back"),
        "credit-balance-received": _("Payment, kept as credit"),
        "credit-balance-paid-back": _("Credit paid back"),
        "credit-balance-withdrawn": _("Credit taken back"),
        "wallet-invoice": _("Paid from the wallet") if row.amount < 0 else _("Given back to the wallet"),
        "write-off": _("Written off") if row.amount < 0 else _("Write-off taken back"),
    }
    return labels.get(row.event, row.event)


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
