"""A wallet that has paid for years shows its newest bookings as quickly as a new one, and the same ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import Wallet, WalletEntry, WalletScheme
from billing.models.wallets import EntrySide
from billing.queries import wallets as reading
from billing.queries.wallets import Booked
from billing.rules.money import TOKENS
from billing.rules.wallet import Piece
from billing.wallets import booking, grants
from billing.wallets.entries import Booking, post
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import a_plan, a_tenant, at
from tests.owner import as_owner

pytestmark = pytest.mark.django_db

HOURS = 400  # of bookings
FEBRUARY = at("2026-02-01")


def a_wallet() -> Wallet:
    """Every hour three grants pay, of every fifth one something goes back, and every third time one repays another."""
    lab = a_tenant(plan=a_plan("tokens", TOKENS, settles="wallet"))
    scheme = WalletScheme.objects.create(tenant=lab, scope="tenant", unit=TOKENS, since=FEBRUARY)
    row = booking.wallet_of(scheme, booking.Owner(None, ""))
    for key in ("a", "b", "c"):
        grants.grant(wallet=row, amount=10**6, key=key, who="op", moment=FEBRUARY)
        row.refresh_from_db()
    a, b, c = row.grants.order_by("pk").values_list("pk", flat=True)
    for hour in range(HOURS):
        moment = FEBRUARY + timedelta(hours=hour)
        paid = [Piece(a, -1), Piece(b, -2), Piece(c, -3)]
        post(row, Booking(paid, EntrySide.USED, moment, memo=f"Hour {hour}", day=moment.date()))
        if hour % 5 == 0:
            less = f"Less of hour {hour}"
            post(row, Booking([Piece(c, 1)], EntrySide.USED, moment, memo=less, day=moment.date()))
        if hour % 3 == 0:
            post(row, Booking([Piece(a, 1), Piece(b, -1)], None, moment, memo="Within"))
    return row


begun, wallet = sharing.fixtures(a_wallet, "wallet")


def pages(tenant: Tenant, wallet: Wallet) -> Iterator[list[Booked]]:
    before = 0
    while True:
        page = reading.statement(tenant, wallet.pk, before=before)
        assert page is not None
        yield list(page.rows)
        before = page.older
        if not before:
            return


def test_the_pages_have_each_booking_once_with_what_it_left(wallet: Wallet) -> None:
    all_pages = list(pages(wallet.tenant, wallet))
    assert [len(all_page) for all_page in all_pages[:-1]] == [50] * (len(all_pages) - 1)
    rows = [row for all_page in all_pages for row in all_page]
    assert len(rows) == 3 + HOURS + HOURS // 5
    assert [row.memo for row in rows[:2]] == ["Hour 399", "Hour 398"]
    assert (rows[0].balance, rows[-1].balance) == (3 * 10**6 - 6 * HOURS + HOURS // 5, 10**6)
    for newer, older in pairwise(rows):
        assert newer.balance - newer.amount == older.balance


def test_a_page_reads_no_more_than_it_shows(wallet: Wallet) -> None:
    with CaptureQueriesContext(connection) as queries:
        reading.statement(wallet.tenant, wallet.pk)
    (sql,) = [query["sql"] for query in queries.captured_queries if "GROUP BY booking" in query["sql"]]
    with as_owner() as cursor:
        cursor.execute("ANALYZE billing_walletentry")
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        (plan,) = cursor.fetchone()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    read = max(row["Actual Rows"] for row in nodes(plan[0]["Plan"]) if "Scan" in row["Node Type"])
    assert read <= 50 * reading.ENTRIES < WalletEntry.objects.filter(side=EntrySide.BALANCE).count() / 5


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def test_a_month_opens_with_what_the_one_before_left(wallet: Wallet) -> None:
    def of(since: str, until: str) -> tuple[int, int, int]:
        statement = reading.of_month(wallet.tenant, wallet.pk, since=at(since), until=at(until), limit=5)
        assert statement is not None
        return statement.opening, statement.closing, statement.count

    left = wallet.balance
    assert of("2026-01-01", "2026-02-01") == (0, 0, 0)
    assert of("2026-02-01", "2026-02-17 16:00") == (0, left, 3 + HOURS + HOURS // 5)
    assert of("2026-02-02", "2026-02-03") == (
        3 * 10**6 - 6 * 24 + 5,
        3 * 10**6 - 6 * 48 + 10,
        24 + 5,
    )
    assert of("2026-03-01", "2026-04-01") == (left, left, 0)
