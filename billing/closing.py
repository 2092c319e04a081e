"""Closing a month: the gates, then draft and issue.

One tenant's trouble never stops the others: what keeps one from closing is an outcome with a
sentence, not an error. Tenants are locked, read and written some at a time, since asking the
database for each alone takes most of a close; where that fails, each of them is closed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from itertools import islice
from zoneinfo import ZoneInfo

import structlog
from django.db import transaction

from billing import calendar, invoicing, statements
from billing.invoicing import Bill
from billing.models import BillingPeriod, CloseProof, Invoice, InvoiceState, PeriodTotal, Verdict
from billing.proof import tenant_sums
from billing.rules.money import Money
from billing.rules.period import label
from billing.standing import Rated, incomplete, owned, rated_up_to, vanished
from clusters.open_runs import Vanished
from portal.tenants.models import Tenant

log = structlog.get_logger("billing.closing")

TOGETHER = 25
"""Tenants in one transaction. Meanwhile nothing is rated for them: it is short."""


class Outcome(StrEnum):
    """What became of one tenant's close."""

    ISSUED = "issued"
    ALREADY = "already issued"
    NOTHING = "nothing to bill"
    CARRIED = "carried forward"
    BLOCKED = "blocked"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Closed:
    """One tenant's close. `reason` says in a sentence what blocks it and what to do; `note` what to look at."""

    tenant: str
    outcome: Outcome
    number: str = ""
    total: Money | None = None
    reason: str = ""
    note: str = ""


class _Blocked(Exception):  # noqa: N818 - not an error: an outcome on its way out
    """What keeps a tenant from closing."""


@dataclass(frozen=True, slots=True)
class _Run:
    """What is asked of all tenants alike."""

    year: int
    month: int
    moment: datetime
    accept_incomplete: str
    rehearse: bool


def close(
    *,
    tenants: Iterable[Tenant],
    year: int,
    month: int,
    moment: datetime,
    accept_incomplete: str = "",
    rehearse: bool = False,
    progress: Callable[[Closed], None] | None = None,
) -> Iterator[Closed]:
    """Close the period that starts in that month, in each tenant's zone, as of `moment`.

    Issued once; asked again, the same invoices. `rehearse` does everything and keeps nothing.
    `accept_incomplete` is the operator's reason for billing although a cluster has not been read
    through the period's end; it is kept on the invoice.
    """
    run = _Run(year, month, moment, accept_incomplete, rehearse)
    waiting = iter(tenants)
    while together := list(islice(waiting, TOGETHER)):
        for closed in _close(run, together):
            if progress is not None:
                progress(closed)
            yield closed


def _close(run: _Run, tenants: Sequence[Tenant]) -> list[Closed]:
    """In one transaction; where that fails, each tenant in its own."""
    try:
        with transaction.atomic():
            outcomes = _close_locked(run, tenants)
            transaction.set_rollback(run.rehearse)
    except Exception as error:  # whatever it is, the other tenants are closed
        if len(tenants) > 1:
            return [closed for tenant in tenants for closed in _close(run, [tenant])]
        slug = tenants[0].slug
        log.exception("close failed", tenant=slug, month=f"{run.year}-{run.month:02d}")
        return [Closed(slug, Outcome.FAILED, reason=f"{type(error).__name__}: {error}".strip())]
    return outcomes


def _close_locked(run: _Run, tenants: Sequence[Tenant]) -> list[Closed]:
    locked = invoicing.lock_each(tenants)
    periods = calendar.starting_in_each(locked.values(), year=run.year, month=run.month)
    asked = [periods[tenant.pk] for tenant in tenants if tenant.pk in periods]
    accounts = owned(asked)
    outcomes = _close_periods(run, locked, asked, accounts)
    lost = vanished(asked, accounts)
    none = "No period of the tenant starts in that month."
    return [
        _noted(outcomes[tenant.pk], lost.get(tenant.pk, []))
        if tenant.pk in outcomes
        else Closed(locked[tenant.pk].slug, Outcome.NOTHING, reason=none)
        for tenant in tenants
    ]


def _close_periods(
    run: _Run,
    tenants: Mapping[int, Tenant],
    periods: Sequence[BillingPeriod],
    accounts: Mapping[int, set[int]],
) -> dict[int, Closed]:
    """By tenant, as are the accounts."""
    standing = invoicing.standing_each(periods)
    outcomes: dict[int, Closed] = {}
    terms: dict[int, dict[str, str]] = {}
    for period in periods:
        invoice = standing.get(period.pk)
        if invoice is not None and invoice.state == InvoiceState.ISSUED:
            slug = tenants[period.tenant_id].slug
            outcomes[period.tenant_id] = _closed(slug, invoice, Outcome.ALREADY)
    asked = [period for period in periods if period.tenant_id not in outcomes]
    rated, behind = rated_up_to(asked), incomplete(asked, accounts)
    for period in asked:
        tenant = tenants[period.tenant_id]
        try:
            missing = _gates(run, tenant, period, rated.get(tenant.pk, []), behind.get(tenant.pk, []))
        except _Blocked as block:
            outcomes[tenant.pk] = Closed(tenant.slug, Outcome.BLOCKED, reason=str(block))
        else:
            accepted = {"accepted_incomplete": run.accept_incomplete, "incomplete": missing}
            terms[tenant.pk] = accepted if missing else {}
    open_periods = [period for period in asked if period.tenant_id not in outcomes]
    due = statements.pending_each(open_periods, rated)
    bills: list[Bill] = []
    for period in open_periods:
        tenant, found = tenants[period.tenant_id], due[period.tenant_id]
        if isinstance(found, statements.MixedCurrenciesError):
            outcomes[tenant.pk] = Closed(tenant.slug, Outcome.BLOCKED, reason=str(found))
        else:
            bills.append(Bill(tenant, period, found, standing.get(period.pk), terms[tenant.pk]))
    return outcomes | _bill(run, bills)


def _bill(run: _Run, bills: Sequence[Bill]) -> dict[int, Closed]:
    """Issue what is owed, and mark the periods closed. By tenant."""
    owed = [bill for bill in bills if bill.due.lines]
    carried = {bill.tenant.pk: bill for bill in owed if bill.foot.total.amount < 0}
    due = [bill for bill in owed if bill.tenant.pk not in carried]
    for bill in bills:
        if bill.standing is not None and (bill.tenant.pk in carried or not bill.due.lines):
            invoicing.discard(invoice=bill.standing)
    invoices = invoicing.draft_each(due)
    invoicing.issue_each(
        [
            (bill.tenant, invoice, _local_day(run.moment, bill.period))
            for bill, invoice in zip(due, invoices, strict=True)
        ]
    )
    _mark_closed(run, [bill.period for bill in bills])
    _keep_proofs(run, [bill for bill in bills if bill.tenant.pk not in carried])
    outcomes = {bill.tenant.pk: Closed(bill.tenant.slug, Outcome.NOTHING) for bill in bills}
    outcomes |= {pk: _carried(bill, bill.foot.total) for pk, bill in carried.items()}
    for bill, invoice in zip(due, invoices, strict=True):
        outcomes[bill.tenant.pk] = _closed(bill.tenant.slug, invoice, Outcome.ISSUED)
    return outcomes


def _carried(bill: Bill, total: Money) -> Closed:
    """Corrections exceed the period's charges: no invoice says so, the next one takes all of it up."""
    return Closed(
        bill.tenant.slug,
        Outcome.CARRIED,
        reason=f"Corrections of earlier periods exceed this period's charges by {(-total).text} {total.currency}; "
        f"credit notes are not available yet, so the next invoice takes the difference up.",
    )


def _mark_closed(run: _Run, periods: Sequence[BillingPeriod]) -> None:
    BillingPeriod.objects.filter(pk__in=[period.pk for period in periods]).update(closed_at=run.moment)


def _keep_proofs(run: _Run, bills: Sequence[Bill]) -> None:
    sums = tenant_sums([bill.period for bill in bills])
    CloseProof.objects.bulk_create(
        [
            CloseProof(
                period=bill.period,
                tenant=bill.tenant,
                closed_at=run.moment,
                accepted_incomplete=bill.terms.get("accepted_incomplete", ""),
                sums=sums[bill.period.pk],
            )
            for bill in bills
        ]
    )


def _gates(
    run: _Run,
    tenant: Tenant,
    period: BillingPeriod,
    rated: Sequence[Rated],
    behind: Sequence[tuple[str, datetime | None]],
) -> str:
    """Raise what blocks; return what may be missing and the operator accepts."""
    if period.end > run.moment:
        raise _Blocked(f"{_name(period)} runs until {period.end:%Y-%m-%d %H:%M} UTC; close it after that.")
    unclosed = (each for each in rated if each.end <= period.start and not each.closed)
    if any(each.unpriced for each in rated) or any(each.charged for each in unclosed):
        _refuse_open_usage(tenant, period)
    if not behind:
        return ""
    listed = ", ".join(
        f"{cluster} is complete through {f'{through:%Y-%m-%d %H:%M} UTC' if through else 'nothing yet'}"
        for cluster, through in behind
    )
    missing = f"{_name(period)} ends {period.end:%Y-%m-%d %H:%M} UTC, but {listed}."
    if not run.accept_incomplete:
        raise _Blocked(f"{missing} Import the rest, or give a reason with --accept-incomplete.")
    return missing


def _refuse_open_usage(tenant: Tenant, period: BillingPeriod) -> None:
    """Raise for an earlier period with usage that is not closed, and for usage that no price covers."""
    earlier = (
        PeriodTotal.objects.filter(
            tenant=tenant,
            period__end__lte=period.start,
            period__closed_at__isnull=True,
            units__gt=0,
            verdict__in=(Verdict.CHARGED, Verdict.UNPRICED),
        )
        .select_related("period")
        .order_by("period__start")
        .first()
    )
    if earlier is not None:
        raise _Blocked(f"{_name(earlier.period)} has usage and is not closed: close it first.")
    missing = statements.unpriced(tenant=tenant, period=period)
    if missing:
        listed = ", ".join(
            f"{row.resource_hours} {row.resource.upper() if row.resource == 'gpu' else row.resource}-hours"
            + (f" on {row.gpu_model}" if row.gpu_model else "")
            for row in missing
        )
        raise _Blocked(
            f"No price covers {listed}: give the tenant a plan, or its plan a price, and close again."
        )


def _noted(closed: Closed, lost: Sequence[Vanished]) -> Closed:
    """With a sentence where runs of the period are open and their scheduler has lost them."""
    if not lost or closed.outcome is Outcome.BLOCKED:
        return closed
    until = f"{max(run.until for run in lost):%Y-%m-%d %H:%M} UTC"
    if len(lost) == 1:
        note = f"1 run is open here but the scheduler no longer knows it: it is billed until {until}."
        return replace(closed, note=note)
    note = (
        f"{len(lost)} runs are open here but the scheduler no longer knows them: they are billed until {until} "
        f"at the latest."
    )
    return replace(closed, note=note)


def _closed(slug: str, invoice: Invoice, outcome: Outcome) -> Closed:
    return Closed(slug, outcome, invoice.number or "", Money.from_minor(invoice.total, invoice.currency))


def _name(period: BillingPeriod) -> str:
    return label(calendar.as_rule(period), ZoneInfo(period.timezone))


def _local_day(moment: datetime, period: BillingPeriod) -> date:
    return moment.astimezone(ZoneInfo(period.timezone)).date()
