"""How tenants' periods stand before a close: what was rated in them, priced or not, closed or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from billing.catalog import third_party_payers
from billing.models import BillingPeriod
from clusters import open_runs, usage, watermark
from clusters.open_runs import Vanished
from portal.core.tenants.models import Ownership
from portal.prepared import prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "close_inputs.sql")


@dataclass(frozen=True, slots=True)
class RatedPeriod:
    """One billing period in which a tenant has rated usage."""

    tenant: int  # whose usage it is
    period: int
    start: datetime
    end: datetime
    closed: bool
    newest: int  # its newest rated row
    unpriced: bool  # it has totals without a price, of nothing perhaps
    charged: bool  # it has charged use
    covered: int  # the newest of its rated rows that an invoice of who pays covers; 0 where none does

    @property
    def has_changed(self) -> bool:
        """Whether it was rated differently since an invoice last covered it."""
        return self.newest > self.covered


def load_rated_periods(periods: Sequence[BillingPeriod]) -> Mapping[int, list[RatedPeriod]]:
    """By who pays, of whom each has one of the periods here: all that end with it or before it. One query.

    Periods of tenants that others pay for are theirs, and closed as those of who pays are.
    """
    if not periods:
        return {}
    until = {period.tenant_id: period.end for period in periods}
    by_payer: dict[int, list[RatedPeriod]] = defaultdict(list)
    with prepared_cursor() as cursor:
        cursor.execute(sql.RATED_PERIODS, {"tenants": list(until), "until": max(until.values())})
        for payer, tenant, period, start, end, *rest in cursor.fetchall():
            if end <= until[payer or tenant]:
                by_payer[payer or tenant].append(RatedPeriod(tenant, period, start, end, *rest))
    return by_payer


def load_accounts(periods: Iterable[BillingPeriod]) -> Mapping[int, set[int]]:
    """By who pays, of whom each has one of the periods, the accounts of whose use it paid in it. Two queries."""
    own = {period.tenant_id: period for period in periods}
    paid: dict[int, list[int]] = defaultdict(list)
    for tenant in own:
        paid[tenant].append(tenant)
    for stretch in third_party_payers.stretches_of(payers=own):
        period = own[stretch.payer]
        if stretch.overlaps(period.start, period.end):
            paid[stretch.tenant].append(stretch.payer)
    accounts: dict[int, set[int]] = defaultdict(set)
    ownerships = Ownership.objects.filter(tenant__in=paid).values_list("tenant", "account", "since", "until")
    for tenant, account, since, until in ownerships:
        for payer in paid[tenant]:
            period = own[payer]
            if (since is None or since < period.end) and (until is None or until > period.start):
                accounts[payer].add(account)
    return accounts


def find_incomplete_clusters(
    periods: Iterable[BillingPeriod], accounts: Mapping[int, set[int]], *, now: datetime
) -> Mapping[int, list[tuple[str, datetime | None]]]:
    """By tenant the clusters of its accounts that the period may still lack usage of: name, watermark. One query.

    A watermark that lies in the future proves nothing either.
    """
    marks = usage.watermarks({account for ids in accounts.values() for account in ids})
    by_tenant = {}
    for period in periods:
        clusters = {marks[account] for account in accounts.get(period.tenant_id, ())}
        behind = [
            (name, mark)
            for name, mark in clusters
            if mark is None or mark < period.end or watermark.is_ahead(mark, moment=now)
        ]
        by_tenant[period.tenant_id] = sorted(behind, key=lambda cluster: cluster[0])
    return by_tenant


def find_vanished_runs(
    periods: Iterable[BillingPeriod], accounts: Mapping[int, set[int]]
) -> Mapping[int, list[Vanished]]:
    """By tenant the runs of its accounts in the period that are open, and lost by their scheduler. One query."""
    by_account: dict[int, list[Vanished]] = defaultdict(list)
    for run in open_runs.vanished_of({account for ids in accounts.values() for account in ids}):
        by_account[run.account_id].append(run)
    return {
        period.tenant_id: [
            run
            for account in accounts.get(period.tenant_id, ())
            for run in by_account[account]
            if run.started < period.end and run.until > period.start
        ]
        for period in periods
    }
