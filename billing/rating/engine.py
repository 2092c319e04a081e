"""Usage → rated usage: who owned it, on which terms, at which price, in set-based SQL.

Each record is cut at the borders of ownership, payer, billing period, subscription, plan version and price, and where a
price for hours of the week begins or ends.
What the cuts should be is compared with what is there; the difference is appended: nothing for
a record that is rated right already, a negation and a new row for a cut that is rated differently
now. Only the last cut of a run that goes on grows in its place, until a document covers it. So
rating may run any number of times, in any order, and ends in the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog
from django.db import IntegrityError, connection, transaction

from billing.catalog import billing_periods, plans
from billing.rating import period_jobs, tariff_hours
from billing.rules.hours import LONGEST
from clusters import absent_records, temp_tables, usage
from clusters.absent_records import MonthFilesError
from portal.core.tenants.models import Ownership, Tenant
from portal.sql_files import Statements

log = structlog.get_logger(__name__)
sql = Statements(__file__, "rate_usage.sql")
price_spans = Statements(__file__, "price_spans.sql")
writing = Statements(__file__, "write_usage.sql")

Progress = Callable[[int], None]

Selected = Mapping[str, bool]
"""What prices of the plans concerned select by, and differ by: the answer to `price_spans.SELECTED`."""


def rate_touched() -> bool:
    """Rate what the ledger stored in this transaction; whether there was anything, and so the working tables are."""
    if any_touched := usage.load_touched() > 0:
        _rate()
    return any_touched


def rate_utilised() -> None:
    """Rate again the records of which this transaction was told how busy they were, where a price depends on that."""
    if plans.by_use() and usage.load_utilised():
        _rate()


def rate_accounts(account_ids: Sequence[int], *, progress: Progress | None = None) -> None:
    """Rate all usage of the accounts again; only what comes out differently is written.

    One transaction per 10,000 records: a kill loses nothing, and the next run goes on. The locks come
    before the records are read, so that nothing is rated from an older revision or an older price. Dropped months
    on whose terms this makes a difference are loaded back first; raises MonthFilesError where one cannot be.
    """
    with transaction.atomic():
        _lock(account_ids)  # waits for imports under way, whose first records no page would hold yet
        absent_records.load_changed(account_ids)
        dropped = absent_records.list_all()
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
            if absent_records.list_all() != dropped:  # nobody drops one behind this until the slice is rated
                absent_records.load_changed(account_ids)
                dropped = absent_records.list_all()
            count = usage.load_slice(after, last, account_ids)
            if count:
                _rate()
        if progress is not None:
            progress(count)


@transaction.atomic
def rate_slice(account_ids: Sequence[int], after: int | None = None) -> int | None:
    """Rate the first 10,000 records of the accounts, or those behind an id; the last id, None where none are left.

    Called with it it goes on, until none are left: as `rate_accounts`, in turn with whatever else is to be done.
    The first alone asks what dropped months are rated on: none is dropped while others wait in the outbox.
    """
    _lock(account_ids)
    if after is None:
        absent_records.load_changed(account_ids)
    count = usage.load_all(account_ids) if after is None else None
    last = None
    if count is None:
        after = after or 0
        last = usage.find_border(account_ids, after=after)
        count = usage.load_slice(after, usage.ALL_IDS[1] if last is None else last, account_ids)
    if count:
        _rate()
    return last


def accounts_of(tenants: Iterable[Tenant]) -> list[int]:
    """Whatever these tenants ever owned."""
    owned = Ownership.objects.filter(tenant__in=list(tenants)).order_by("account")
    return list(owned.values_list("account", flat=True).distinct())


def rate_tenants(tenants: Iterable[Tenant], *, progress: Progress | None = None) -> None:
    """Rate again whatever these tenants ever owned, after a change of their plan or its prices."""
    rate_accounts(accounts_of(tenants), progress=progress)


def _rate() -> None:
    """Rate the records in `usage_input`. Holds the owners' locks until the transaction ends."""
    with connection.cursor() as cursor:
        _prepare(cursor, "OFFER", "RATE")
        cursor.execute("SELECT array_agg(DISTINCT account_id) FROM usage_input")
        _lock(cursor.fetchone()[0])
        unrated = _is_unrated(cursor)
        _ensure_periods(cursor)
        cursor.execute(sql.ENSURE_MONTHS)
        cursor.execute(sql.ENSURE_JOBS)
        selected = _offer(cursor)
        if not (unrated and _rate_anew(cursor, selected)):
            _cut(cursor, selected)
            _rate_again(cursor)


def suppose() -> None:
    """Cut the records in `usage_input` and find their prices as rating does: `rate_cut`, by `rate_offer`.

    Nothing is locked and nothing is kept: both tables are the session's own, until its transaction ends. Billing
    periods that the usage falls into have to be there.
    """
    with connection.cursor() as cursor:
        _prepare(cursor, "OFFER")
        _cut(cursor, _offer(cursor))


def _prepare(cursor: Any, *sets: str) -> None:
    """Only the tables that are filled: each quote creates them again."""
    cursor.execute(sql.SETTINGS)
    temp_tables.prepare(cursor, *sets)


def _offer(cursor: Any) -> Selected:
    """Find the terms and prices of all that is in `usage_input`; returns what these differ by."""
    cursor.execute(f"{price_spans.SPANS};{price_spans.ANALYZE_SPANS}")
    cursor.execute(price_spans.SELECTED)
    columns = [column.name for column in cursor.description]
    selected = dict(zip(columns, cursor.fetchone(), strict=True))
    selected["by_gpu_model"] |= selected["by_dimension"]  # in whose place sums have their dimensions
    if any(selected.values()):
        cursor.execute(price_spans.ANALYZE_SHAPES)
    if selected["in_hours"]:
        tariff_hours.lay(cursor)
    cursor.execute(price_spans.OFFERS, selected)
    cursor.execute(price_spans.ANALYZE_OFFERS)
    return selected


def _cut(cursor: Any, selected: Selected) -> None:
    """Fill `rate_cut`: by one statement, and more only where prices hold in hours of the week or depend on use."""
    values = {**selected, "longest": LONGEST}
    cursor.execute(sql.CUTS, values)
    if selected["in_hours"]:
        cursor.execute(sql.CUTS_IN_HOURS, values)
    if selected["by_use"]:
        cursor.execute(sql.CUTS_BY_USE, values)
    cursor.execute(sql.ANALYZE_CUTS)


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
    """Append all cuts; False, and nothing is done, where some of it was rated and taken back before."""
    try:
        with transaction.atomic():
            if selected["in_hours"] or selected["by_use"]:
                _cut(cursor, selected)
                cursor.execute(sql.CHANGES_OF_UNRATED)
            else:
                cursor.execute(sql.CUTS_OF_UNRATED, selected)
            _append(cursor)
            cursor.execute(writing.HELD)
            cursor.execute(_new_jobs(), {"unrated": True})
            period_jobs.keep(cursor, unrated=True)
    except IntegrityError:
        return False
    return True


def _new_jobs() -> str:
    """JOBS where none is there yet: to be ready to rewrite each takes a fifth of its time."""
    before, _, after = writing.JOBS.partition("ON CONFLICT")
    return before + "RETURNING" + after.partition("RETURNING")[2]


def _rate_again(cursor: Any) -> None:
    """Append the difference between the cuts and what was rated before."""
    cursor.execute(sql.ENTRIES)
    cursor.execute(sql.FORMER_TERMS)
    cursor.execute(sql.CHANGES)
    changes = cursor.rowcount
    cursor.execute(writing.MOVES)
    moves = cursor.rowcount
    if changes:
        cursor.execute(writing.GROWN)
    if changes or moves:
        _append(cursor)
    if moves:
        cursor.execute(writing.DAILY_USAGE_GONE)
    # After the totals: those of reversals are kept under the description that these then replace.
    cursor.execute(writing.HELD)
    cursor.execute(writing.JOBS_GONE)
    cursor.execute(writing.JOBS, {"unrated": False})
    if in_files := period_jobs.keep(cursor, unrated=False):
        try:
            absent_records.load_months(absent_records.list_of_periods(in_files))
        except MonthFilesError as error:  # no money hangs on it, and the overview names such months
            log.warning("most expensive jobs not looked for in files", periods=in_files, reason=str(error))


def _append(cursor: Any) -> None:
    """Write the changes and their totals; what they charge to wallets only where a plan of theirs settles so."""
    cursor.execute(sql.ANALYZE_CHANGES)
    for statement in (
        *(writing.RATED_USAGE, writing.PERIOD_TOTALS, writing.DAYS, writing.DAILY, writing.SERIES),
        *(writing.DAILY_USAGE, writing.DAY_TOTALS, writing.QUOTAS_CHANGED, writing.WALLETS_CHARGED),
    ):
        cursor.execute(statement)
    if cursor.fetchone()[0]:
        for statement in (writing.HOURS, writing.WALLET_TOTALS, writing.WALLETS_DUE):
            cursor.execute(statement)


def _lock(account_ids: Sequence[int]) -> None:
    """Until the transaction ends, nobody else assigns these accounts, nor rates or issues for their owners."""
    with connection.cursor() as cursor:
        values = {"accounts": list(account_ids)}
        cursor.execute(sql.LOCK_ACCOUNTS, values)
        cursor.execute(sql.LOCK_OWNERS, values)
        locked = [tenant for (tenant,) in cursor.fetchall()]
        cursor.execute(sql.PAYERS, {"tenants": locked})
        if {payer for (payer,) in cursor.fetchall()} - set(locked):
            cursor.execute(sql.LOCK_OWNERS, values)
        cursor.execute(sql.HOLD_PROJECTS, values)


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
