"""A tenant's prepaid balances, and the statement of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode

from django.http import Http404, HttpResponse

from billing.documents.csv import Cell, rows_to_csv
from billing.models import EntrySide, GrantKind, Wallet, WalletGrant
from billing.queries import wallets as reading
from billing.queries.wallets import Booked, Month, WalletStatement
from billing.rules.money import Money
from billing.rules.period import parse_month, period_starting_in
from billing.wallets.wallet_holds import available
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web import top_ups
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.shapes import Badge, Fact, Tile
from portal.web.shapes.wallets import (
    BookedRow,
    GrantRow,
    StatementPage,
    TopUpPanel,
    WalletPage,
    WalletRow,
    WalletsPage,
)

KINDS = {
    GrantKind.RULE: Badge(label="By the scheme", tone="muted"),
    GrantKind.TOP_UP: Badge(label="Top-up", tone="ok"),
    GrantKind.GIFT: Badge(label="Given", tone="run"),
}


@tenant_page(Action.READ, area="wallet")
def wallets(request: TenantRequest) -> HttpResponse:
    listed = reading.wallets(request.tenant, after=request.GET.get("after", ""))
    free = available(listed.rows, day=request.today)
    page = WalletsPage(
        rows=tuple(_row(wallet, free[wallet.pk]) for wallet in listed.rows),
        total=" + ".join(say.minor(sum_, unit) for unit, sum_, _ in reading.balances(request.tenant)),
        more=f"?{urlencode({'after': listed.next})}" if listed.next else "",
    )
    return answer(request, request.frame, page, whole="tenant/wallets.html")


@tenant_page(Action.READ, area="wallet")
def wallet(request: TenantRequest, wallet: int) -> HttpResponse:
    before = _number(request.GET.get("before", ""))
    wallet_statement = reading.statement(request.tenant, wallet, before=before)
    if wallet_statement is None:
        raise Http404("no such wallet")
    panel = top_ups.panel(request, wallet_statement.wallet) if not before else None
    page = _page(wallet_statement, request, panel, first=not before)
    return answer(request, request.frame, page, whole="tenant/wallet.html")


@tenant_page(Action.READ, area="wallet")
def statement(request: TenantRequest, wallet: int) -> HttpResponse:
    month = request.GET.get("month") or f"{request.today:%Y-%m}"
    month_statement = _month(request, wallet, month, limit=ROWS)
    page = StatementPage(
        owner=str(month_statement.wallet),
        of=_of(month_statement.wallet),
        number=month_statement.wallet.pk,
        zone=request.tenant.timezone,
        month=say.span(*_ends(month, request), request.tenant.timezone),
        sums=_sums(month_statement),
        rows=tuple(_booked(booked, month_statement.wallet.unit, request) for booked in month_statement.rows),
        more=f"{say.whole(month_statement.count - len(month_statement.rows))} more are in the CSV."
        if month_statement.count > len(month_statement.rows)
        else "",
        csv=f"?{urlencode({'month': month})}",
    )
    return answer(request, request.frame, page, whole="tenant/statement.html")


@tenant_page(Action.READ, area="wallet")
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
    EntrySide.GRANTED: "Given",
    EntrySide.USED: "Used",
    EntrySide.SPENT: "Spent",
    EntrySide.INVOICE: "Paid on invoices",
    EntrySide.EXPIRED: "Expired",
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


def _sums(month_statement: Month) -> tuple[Fact, ...]:
    unit = month_statement.wallet.unit
    moved = [
        Fact(
            label=label,
            value=("+" if month_statement.sums[side] > 0 else "")
            + say.minor(month_statement.sums[side], unit),
        )
        for side, label in SUMS.items()
        if month_statement.sums.get(side)
    ]
    return (
        Fact(label="Opening balance", value=say.minor(month_statement.opening, unit)),
        *moved,
        Fact(label="Closing balance", value=say.minor(month_statement.closing, unit)),
    )


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


def _months(wallet_statement: WalletStatement, request: TenantRequest) -> tuple[Fact, ...]:
    """The last twelve months in which the wallet was open, the newest first: name and query."""
    opened = wallet_statement.wallet.opened_at.astimezone(request.zone).date()
    day = request.today.replace(day=1)
    months: list[Fact] = []
    while len(months) < 12 and day >= opened.replace(day=1):
        since, until = _ends(f"{day:%Y-%m}", request)
        label = say.span(since, until, request.tenant.timezone)
        months.append(Fact(label=label, value=f"?{urlencode({'month': f'{day:%Y-%m}'})}"))
        day = (day - timedelta(days=1)).replace(day=1)
    return tuple(months)


def _number(text: str) -> int:
    """A cursor that is none begins at the top."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _of(wallet: Wallet) -> str:
    return "User" if wallet.user else "Project" if wallet.project else "Tenant"


def _row(wallet: Wallet, free: int) -> WalletRow:
    return WalletRow(
        number=wallet.pk,
        owner=str(wallet),
        of=_of(wallet),
        balance=say.minor(wallet.balance, wallet.unit),
        free=_spendable(free, wallet.unit),
        debt=wallet.balance < 0,
    )


def _spendable(free: int, unit: str) -> str:
    return say.minor(max(free, 0), unit)


def _page(
    wallet_statement: WalletStatement, request: TenantRequest, panel: TopUpPanel | None, *, first: bool
) -> WalletPage:
    row = wallet_statement.wallet
    free = available([row], day=request.today)[row.pk]
    overdraft = say.minor(row.scheme.overdraft, row.unit)
    debt = "below zero: the next grant pays it first" if row.balance < 0 else "what is left of all grants"
    return WalletPage(
        number=row.pk,
        owner=str(row),
        of=_of(row),
        zone=request.tenant.timezone,
        tiles=(
            Tile(label="Balance", value=say.minor(row.balance, row.unit), note=debt),
            *(
                (Tile(label="Held", value=say.minor(row.held, row.unit), note="set aside for admitted work"),)
                if row.held
                else ()
            ),
            Tile(
                label="May still be spent",
                value=_spendable(free, row.unit),
                note=f"with {overdraft} of overdraft",
            ),
        ),
        grants=tuple(_grant(grant, row.unit) for grant in wallet_statement.grants),
        rows=tuple(_booked(booked, row.unit, request) for booked in wallet_statement.rows),
        older=f"?{urlencode({'before': wallet_statement.older})}" if wallet_statement.older else "",
        first=first,
        months=_months(wallet_statement, request) if first else (),
        top_up=panel,
    )


def _grant(grant: WalletGrant, unit: str) -> GrantRow:
    return GrantRow(
        name=grant.why or grant.key,
        given=say.day(grant.usable_from),
        amount=say.minor(grant.amount, unit),
        left=say.minor(grant.left, unit),
        expires=say.day(grant.expires_on) if grant.expires_on else "never",
        badge=KINDS[GrantKind(grant.kind)],
    )


def _booked(booked: Booked, unit: str, request: TenantRequest) -> BookedRow:
    return BookedRow(
        at=say.moment(booked.at, request.zone),
        memo=booked.memo,
        day=say.day(booked.day) if booked.day else "",
        amount=("+" if booked.amount > 0 else "") + say.minor(booked.amount, unit),
        credit=booked.amount > 0,
        balance=say.minor(booked.balance, unit),
    )
