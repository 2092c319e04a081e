"""Usage → rated usage: who owned it, on which terms, at which price, in set-based SQL.

Each record is cut at the borders of ownership, payer, billing period, subscription, plan version and price, and where a
price for hours of the week begins or ends.
What the cuts should be is compared with what stands there; the difference is appended: nothing for
a record that is rated right already, a negation and a new row for a cut that is rated differently
now. So rating may run any number of times, in any order, and ends in the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import IntegrityError, connection, transaction

from billing.catalog import billing_periods, plans
from billing.rating import price_spans_sql, tariff_hours, wallet_sql, write_usage_sql
from billing.rating import rate_usage_sql as sql
from billing.rating.price_spans_sql import Selected
from clusters import temp_tables, usage
from portal.core.tenants.models import Ownership, Tenant

Progress = Callable[[int], None]


def rate_touched() -> None:
    """Rate what the ledger stored in this transaction."""
    if usage.load_touched():
        _rate()


def rate_utilised() -> None:
    """Rate again the records of which this transaction was told how busy they were, where a price depends on that."""
    if plans.by_use() and usage.load_utilised():
        _rate()


def rate_accounts(account_ids: Sequence[int], *, progress: Progress | None = None) -> None:
    """Rate all usage of the accounts again; only what comes out differently is written.

    One transaction per 10,000 records: a kill loses nothing, and the next run goes on. The locks come
    before the records are read, so that nothing is rated from an older revision or an older price.
    """
    with transaction.atomic():
        _lock(account_ids)  # waits for imports under way, whose first records no page would hold yet
        count = usage.load_all(account_ids)
        if count:
            _rate()
    if count is not None:
        if progress is not None:
            progress(count)
        return
    for after, last in usage.slices(account_ids):
        with transaction.atomic():
            _lock(account_ids)
            count = usage.load_slice(after, last, account_ids)
            if count:
                _rate()
        if progress is not None:
            progress(count)


def rate_tenants(tenants: Iterable[Tenant], *, progress: Progress | None = None) -> None:
    """Rate again whatever these tenants ever owned, after a change of their plan or its prices."""
    ids = (
        Ownership.objects.filter(tenant__in=list(tenants))
        .order_by("account")
        .values_list("account", flat=True)
    )
    rate_accounts(list(ids.distinct()), progress=progress)


def _rate() -> None:
    """Rate the records in `usage_input`. Holds the owners' locks until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(sql.PREPARE)
        temp_tables.empty(cursor, *sql.TABLES)
        cursor.execute("SELECT array_agg(DISTINCT account_id) FROM usage_input")
        _lock(cursor.fetchone()[0])
        unrated = _is_unrated(cursor)
        _ensure_periods(cursor)
        cursor.execute(sql.ENSURE_MONTHS)
        selected = _offer(cursor)
        if not (unrated and _rate_anew(cursor, selected)):
            _rate_again(cursor, selected)


def suppose() -> None:
    """Cut the records in `usage_input` and find their prices as rating does: `rate_wanted`, by `rate_offer`.

    Nothing is locked and nothing is kept: both tables are the session's own, until its transaction ends. Billing
    periods that the usage falls into have to be there.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql.PREPARE)
        temp_tables.empty(cursor, *sql.TABLES)
        selected = _offer(cursor)
        for statement in sql.wanted(selected):
            cursor.execute(statement)


def _offer(cursor: Any) -> Selected:
    """Find the terms and prices of all that is in `usage_input`; returns what these differ by."""
    cursor.execute(price_spans_sql.SPANS)
    cursor.execute(price_spans_sql.SELECTED)
    selected = Selected.of(cursor.fetchone())
    if selected.attributes:
        cursor.execute(f"ANALYZE usage_input ({', '.join(selected.attributes)})")
    if selected.in_hours:
        tariff_hours.lay(cursor)
    cursor.execute(price_spans_sql.offers(selected))
    return selected


def _is_unrated(cursor: Any) -> bool:
    """Whether no job shows any of it yet. Locks who owned a revised record before it moved."""
    cursor.execute(sql.MAY_BE_SHOWN)
    if not cursor.fetchone()[0]:
        return True
    cursor.execute(sql.BEFORE)
    cursor.execute(sql.LOCK_FORMER_OWNERS)
    if cursor.fetchone() is not None:
        cursor.execute(sql.BEFORE)
    cursor.execute("SELECT NOT EXISTS (TABLE rate_before)")
    return bool(cursor.fetchone()[0])


def _rate_anew(cursor: Any, selected: Selected) -> bool:
    """Append all that should stand; False, and nothing is done, where some of it was rated and taken back before."""
    try:
        with transaction.atomic():
            for statement in (*sql.wanted_of_unrated(selected), *write_usage_sql.RATED):
                cursor.execute(statement)
            _charge_wallets(cursor)
            for statement in write_usage_sql.JOBS_OF_UNRATED:
                cursor.execute(statement)
    except IntegrityError:
        return False
    return True


def _rate_again(cursor: Any, selected: Selected) -> None:
    """Append the difference between what should stand and what does."""
    for statement in sql.wanted(selected):
        cursor.execute(statement)
    cursor.execute(sql.STANDING)
    cursor.execute(sql.FORMER_TERMS)
    cursor.execute(sql.CHANGES)
    if cursor.rowcount:
        for statement in (sql.ANALYZE_CHANGES, *write_usage_sql.RATED):
            cursor.execute(statement)
        _charge_wallets(cursor)
    for statement in write_usage_sql.JOBS_CHANGED:
        cursor.execute(statement)


def _charge_wallets(cursor: Any) -> None:
    """Keep what the changes charge to wallets; nothing where no plan of theirs settles so."""
    cursor.execute(wallet_sql.CHARGED)
    if cursor.fetchone()[0]:
        for statement in wallet_sql.TOTALS:
            cursor.execute(statement)


def _lock(account_ids: Sequence[int]) -> None:
    """Until the transaction ends, nobody else assigns these accounts, nor rates or issues for their owners."""
    with connection.cursor() as cursor:
        cursor.execute(sql.LOCK_ACCOUNTS, [list(account_ids)])
        cursor.execute(sql.LOCK_OWNERS, [list(account_ids)])
        locked = [tenant for (tenant,) in cursor.fetchall()]
        cursor.execute(sql.PAYERS, [locked])
        if {payer for (payer,) in cursor.fetchall()} - set(locked):
            cursor.execute(sql.LOCK_OWNERS, [list(account_ids)])
        cursor.execute(sql.HOLD_PROJECTS, [list(account_ids)])


def _ensure_periods(cursor: Any) -> None:
    """Make the billing periods that the usage falls into."""
    cursor.execute(sql.PERIODS_NEEDED)
    for tenant_id, timezone, anchor_day, since, until, first, last in cursor.fetchall():
        billing_periods.add(
            tenant_id=tenant_id,
            timezone=timezone,
            anchor_day=anchor_day,
            since=datetime.fromtimestamp(since, UTC),
            until=datetime.fromtimestamp(until, UTC),
            reach=None if first is None else (first, last),
        )
