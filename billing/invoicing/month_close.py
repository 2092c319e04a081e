"""Closing a month: its `close_blockers`, then draft and issue.

One tenant's trouble never stops the others: what keeps one from closing is an outcome with a
sentence, not an error. Tenants are locked, read and written some at a time, since asking the
database for each alone takes most of a close; where that fails, each of them is closed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

import structlog
from django.db import transaction

from billing.catalog import billing_periods
from billing.invoicing import approvals, close_blockers, issue, missing_usage, numbering, statements
from billing.invoicing.close_inputs import (
    find_incomplete_clusters,
    find_vanished_runs,
    load_accounts,
    load_rated_periods,
)
from billing.invoicing.close_results import (
    Block,
    Outcome,
    TenantClose,
    combine_periods,
    make_blocked,
    make_invoiced,
)
from billing.invoicing.invoice_drafts import PeriodCharges
from billing.models import BillingPeriod, InvoiceState
from billing.rating import reratings
from clusters.open_runs import Vanished
from portal.core.tenants.models import Tenant

__all__ = ["Outcome", "TenantClose", "close_month"]

log = structlog.get_logger("billing.invoicing.month_close")

TOGETHER = 25
"""Tenants in one transaction. Meanwhile nothing is rated for them: it is short."""

APART = "closing apart"
"""What is logged where tenants could not be closed in one transaction, and each is closed in its own."""


@dataclass(frozen=True, slots=True)
class _Run:
    """What is asked of all tenants alike."""

    year: int
    month: int
    moment: datetime
    now: datetime
    accept_incomplete: str
    preview: bool


def close_month(
    *,
    tenants: Iterable[Tenant],
    year: int,
    month: int,
    moment: datetime,
    accept_incomplete: str = "",
    preview: bool = False,
    progress: Callable[[TenantClose], None] | None = None,
    now: datetime | None = None,
) -> Iterator[TenantClose]:
    """Close the period that starts in that month, in each tenant's zone, as of `moment`.

    Issued once; asked again, the same invoices. `preview` does everything, keeps nothing, and says what differs
    from the period before.
    `accept_incomplete` is the operator's reason for billing although a cluster has not been read
    through the period's end, or was not seen all along; it is kept on the invoice. `now` is the present,
    where the close is dated back.
    """
    run = _Run(year, month, moment, now or moment, accept_incomplete, preview)
    waiting = iter(tenants)
    while together := list(islice(waiting, TOGETHER)):
        for one in _preview(run, together) if preview else _close_periods_of_month(run, together):
            if progress is not None:
                progress(one)
            yield one


def _preview(run: _Run, tenants: Sequence[Tenant]) -> list[TenantClose]:
    """All periods of a month, each over the one before it, and nothing is kept of any."""
    with transaction.atomic():
        outcomes = _close_periods_of_month(run, tenants)
        transaction.set_rollback(True)
    return outcomes


def _close_periods_of_month(run: _Run, tenants: Sequence[Tenant]) -> list[TenantClose]:
    return _with_rest_of_month(run, tenants, _close(run, tenants))


def _close(run: _Run, tenants: Sequence[Tenant]) -> list[TenantClose]:
    """In one transaction; where that fails, each tenant in its own."""
    try:
        with transaction.atomic():
            outcomes = _close_locked(run, tenants)
    except Exception as error:  # whatever it is, the other tenants are closed
        month = f"{run.year}-{run.month:02d}"
        if len(tenants) > 1:  # it can go well one by one: what is wrong in asking together is told here alone
            slugs = [tenant.slug for tenant in tenants]
            log.warning(APART, tenants=slugs, month=month, exc_info=True)
            return [one for tenant in tenants for one in _close(run, [tenant])]
        slug = tenants[0].slug
        log.exception("close failed", tenant=slug, month=month)
        return [TenantClose(slug, Outcome.FAILED, reason=f"{type(error).__name__}: {error}".strip())]
    return outcomes


_DONE = (Outcome.ISSUED, Outcome.CORRECTED, Outcome.ALREADY, Outcome.NOTHING, Outcome.CARRIED)


def _with_rest_of_month(
    run: _Run, tenants: Sequence[Tenant], outcomes: Sequence[TenantClose]
) -> list[TenantClose]:
    """Changed anchor days have several periods begin in one month: all are closed with the first, or named.

    Left open, one would keep the next month from closing, and nobody would know why.
    """
    by_slug = {one.tenant: [one] for one in outcomes}
    going = [tenant for tenant in tenants if by_slug[tenant.slug][0].outcome in _DONE]
    rest = billing_periods.open_periods(going, year=run.year, month=run.month) if going else {}
    names = {
        tenant.slug: [billing_periods.name(period) for period in rest.get(tenant.pk, ())] for tenant in going
    }
    while going := [
        tenant for tenant in going if rest.get(tenant.pk) and rest[tenant.pk].pop(0).end <= run.moment
    ]:
        again = _close(run, going)
        for one in again:
            nameless = run.preview and one.change  # the number of the invoice before it is nobody's
            by_slug[one.tenant].append(replace(one, change=replace(nameless, number="")) if nameless else one)
        going = [tenant for tenant, one in zip(going, again, strict=True) if one.outcome in _DONE]
    return [
        combine_periods(outcomes_of_tenant, names.get(slug, []))
        for slug, outcomes_of_tenant in by_slug.items()
    ]


def _close_locked(run: _Run, tenants: Sequence[Tenant]) -> list[TenantClose]:
    locked = numbering.lock_tenants(tenants)
    periods = billing_periods.periods_starting_in(locked.values(), year=run.year, month=run.month)
    month_periods = [periods[tenant.pk] for tenant in tenants if tenant.pk in periods]
    accounts = load_accounts(month_periods)
    outcomes = _close_periods(run, locked, month_periods, accounts)
    vanished_runs = find_vanished_runs(month_periods, accounts)
    none = "No period of the tenant starts in that month."
    return [
        _add_note(outcomes[tenant.pk], vanished_runs.get(tenant.pk, []))
        if tenant.pk in outcomes
        else TenantClose(locked[tenant.pk].slug, Outcome.NOTHING, reason=none)
        for tenant in tenants
    ]


def _close_periods(
    run: _Run,
    tenants: Mapping[int, Tenant],
    periods: Sequence[BillingPeriod],
    accounts: Mapping[int, set[int]],
) -> dict[int, TenantClose]:
    """By tenant, as are the accounts."""
    invoices = numbering.load_current_invoices(periods)
    outcomes: dict[int, TenantClose] = {}
    terms: dict[int, dict[str, str]] = {}
    for period in periods:
        invoice = invoices.get(period.pk)
        if invoice is not None and invoice.state == InvoiceState.ISSUED:
            slug = tenants[period.tenant_id].slug
            outcomes[period.tenant_id] = make_invoiced(slug, invoice, Outcome.ALREADY)
    unissued_periods = [period for period in periods if period.tenant_id not in outcomes]
    rated, doubted = (
        load_rated_periods(unissued_periods),
        missing_usage.find_doubts(unissued_periods, accounts),
    )
    behind = find_incomplete_clusters(unissued_periods, accounts, now=run.now)
    waiting = approvals.list_undecided(unissued_periods)
    rerated = reratings.find_tenants([period.tenant_id for period in unissued_periods])
    for period in unissued_periods:
        tenant = tenants[period.tenant_id]
        doubts = close_blockers.find_doubts(
            period, behind.get(tenant.pk, []), doubted.get(tenant.pk, []), now=run.now
        )
        blocks = list(
            close_blockers.find_blocks(
                tenant,
                period,
                rated.get(tenant.pk, []),
                waiting.get(tenant.pk, []),
                at=run.moment,
                rerated=tenant.pk in rerated,
            )
        )
        if doubts and not run.accept_incomplete and period.end <= run.moment:
            blocks.append(close_blockers.block_for_doubts(doubts))
        if blocks:
            outcomes[tenant.pk] = make_blocked(tenant.slug, blocks)
        else:
            missing = " ".join(doubt.fact for doubt in doubts)
            accepted = {"accepted_incomplete": run.accept_incomplete, "incomplete": missing}
            terms[tenant.pk] = accepted if missing else {}
    open_periods = [period for period in unissued_periods if period.tenant_id not in outcomes]
    due = statements.make_statements(open_periods, rated)
    owing: list[PeriodCharges] = []
    for period in open_periods:
        tenant, statement = tenants[period.tenant_id], due[period.tenant_id]
        if isinstance(statement, statements.MixedCurrenciesError):
            outcomes[tenant.pk] = make_blocked(tenant.slug, [Block("mixed-currencies", str(statement))])
        else:
            owing.append(PeriodCharges(tenant, period, statement, invoices.get(period.pk), terms[tenant.pk]))
    return outcomes | issue.issue_periods(owing, moment=run.moment, compare=run.preview)


def _add_note(closed: TenantClose, vanished_runs: Sequence[Vanished]) -> TenantClose:
    """With a sentence where runs of the period are open and their scheduler has lost them."""
    if not vanished_runs or closed.outcome is Outcome.BLOCKED:
        return closed
    until = f"{max(run.until for run in vanished_runs):%Y-%m-%d %H:%M} UTC"
    if len(vanished_runs) == 1:
        note = f"1 run is open here but the scheduler no longer knows it: it is billed until {until}."
        return replace(closed, note=note)
    note = (
        f"{len(vanished_runs)} runs are open here but the scheduler no longer knows them: "
        f"they are billed until {until} at the latest."
    )
    return replace(closed, note=note)
