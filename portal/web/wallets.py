"""A tenant's prepaid balances, and the statement of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.documents.csv import Cell, rows_to_csv
from billing.models import EntrySide, Wallet
from billing.queries import wallets as reading
from billing.queries.wallets import Month
from billing.rules.money import Money
from billing.rules.period import parse_month, period_starting_in
from billing.wallets.wallet_holds import available
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web import top_ups
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.tiles import Tile


@tenant_page(Action.READ_ALL, area="wallet")
def wallets(request: TenantRequest) -> HttpResponse:
    listed = reading.wallets(request.tenant, after=request.GET.get("after", ""))
    free = available(listed.rows, day=request.today)
    page = {
        "rows": [(row, max(free[row.pk], 0)) for row in listed.rows],
        "balances": reading.balances(request.tenant),
        "more": listed.next,
    }
    return answer(request, request.frame, page, whole="tenant/wallets.html")


@tenant_page(Action.READ_ALL, area="wallet")
def wallet(request: TenantRequest, wallet: int) -> HttpResponse:
    before = _number(request.GET.get("before", ""))
    wallet_statement = reading.statement(request.tenant, wallet, before=before)
    if wallet_statement is None:
        raise Http404("no such wallet")
    row = wallet_statement.wallet
    page = {
        "wallet": row,
        "tiles": _tiles(row, request),
        "statement": wallet_statement,
        "months": _months(row, request) if not before else (),
        "top_up": top_ups.panel(request, row) if not before else None,
        "first": not before,
    }
    return answer(request, request.frame, page, whole="tenant/wallet.html")


@tenant_page(Action.READ_ALL, area="wallet")
def statement(request: TenantRequest, wallet: int) -> HttpResponse:
    month = request.GET.get("month") or f"{request.today:%Y-%m}"
    month_statement = _month(request, wallet, month, limit=ROWS)
    page = {
        "wallet": month_statement.wallet,
        "statement": month_statement,
        "month": say.span(*_ends(month, request), request.tenant.timezone),
        "moved": [
            (_(label), month_statement.sums[side])
            for side, label in SUMS.items()
            if month_statement.sums.get(side)
        ],
        "more": month_statement.count - len(month_statement.rows),
        "csv": urlencode({"month": month}),
    }
    return answer(request, request.frame, page, whole="tenant/statement.html")


@tenant_page(Action.READ_ALL, area="wallet")
def statement_csv(request: TenantRequest, wallet: int) -> HttpResponse:
    month = request.GET.get("month") or f"{request.today:%Y-%m}"
    month_statement = _month(request, wallet, month, limit=ROWS_IN_CSV)
    return HttpResponse(
        b"".join(rows_to_csv(COLUMNS, _cells(month_statement, request, month))),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="wallet-{wallet}-{month}.csv"'},
    )


COLUMNS = ("booked", "what", "service_day", "amount", "balance", "unit")
ROWS, ROWS_IN_CSV = 500, 1_000_000
SUMS = {
    EntrySide.GRANTED: gettext_noop("Given"),
    EntrySide.USED: gettext_noop("Used"),
    EntrySide.SPENT: gettext_noop("Spent"),
    EntrySide.INVOICE: gettext_noop("Paid on invoices"),
    EntrySide.EXPIRED: gettext_noop("Expired"),
}


def _ends(month: str, request: TenantRequest) -> tuple[datetime, datetime]:
    """The first instants of the month, and of the one after it, in the tenant's zone; 404 for a text that is none."""
    try:
        year, number = parse_month(month)
    except ValueError as error:
        raise Http404("no such month") from error
    period = period_starting_in(year, number, zone=request.tenant.zone, anchor_day=1)
    return period.start, period.end


def _month(request: TenantRequest, wallet: int, month: str, *, limit: int) -> Month:
    since, until = _ends(month, request)
    month_statement = reading.of_month(request.tenant, wallet, since=since, until=until, limit=limit)
    if month_statement is None:
        raise Http404("no such wallet")
    return month_statement


def _cells(month_statement: Month, request: TenantRequest, month: str) -> Iterator[Sequence[Cell]]:
    """From the opening to the closing balance; amounts as plain decimals."""
    unit = month_statement.wallet.unit

    def amount(minor: int) -> Decimal:
        return Decimal(Money.from_minor(minor, unit).text)

    since, until = (f"{at.astimezone(request.zone):%Y-%m-%dT%H:%M:%S%z}" for at in _ends(month, request))
    yield since, "Opening balance", None, None, amount(month_statement.opening), unit
    for row in month_statement.rows:
        at = f"{row.at.astimezone(request.zone):%Y-%m-%dT%H:%M:%S%z}"
        yield at, row.memo, row.day, amount(row.amount), amount(row.balance), unit
    yield until, "Closing balance", None, None, amount(month_statement.closing), unit


def _months(row: Wallet, request: TenantRequest) -> list[tuple[str, str]]:
    """The last twelve months in which the wallet was open, the newest first: name and query."""
    opened = row.opened_at.astimezone(request.zone).date()
    day = request.today.replace(day=1)
    months: list[tuple[str, str]] = []
    while len(months) < 12 and day >= opened.replace(day=1):
        label = say.span(*_ends(f"{day:%Y-%m}", request), request.tenant.timezone)
        months.append((label, urlencode({"month": f"{day:%Y-%m}"})))
        day = (day - timedelta(days=1)).replace(day=1)
    return months


def _number(text: str) -> int:
    """A cursor that is none begins at the top."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _tiles(row: Wallet, request: TenantRequest) -> list[Tile]:
    debt = _("remaining credits")
    if row.balance < 0:
        debt = _("below zero: the next grant pays it first")
    free = max(available([row], day=request.today)[row.pk], 0)
    overdraft = say.minor(row.scheme.overdraft, row.unit)
    tiles = [Tile(label=_("Balance"), value=say.minor(row.balance, row.unit), note=debt)]
    if row.held:
        tiles.append(
            Tile(label=_("Held"), value=say.minor(row.held, row.unit), note=_("set aside for admitted work"))
        )
    note = _("with {overdraft} of overdraft").format(overdraft=overdraft)
    return [*tiles, Tile(label=_("Available"), value=say.minor(free, row.unit), note=note)]
