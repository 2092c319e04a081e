"""Closing a month: the gates, then draft and issue, tenant by tenant.

One tenant's trouble never stops the others: each is closed in a transaction of its own, and what
keeps one from closing is an outcome with a sentence, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

import structlog
from django.db import transaction
from django.db.models import Q

from billing import calendar, invoicing, statements
from billing.models import BillingPeriod, CloseProof, Invoice, InvoiceState, PeriodTotal, Verdict
from billing.proof import tenant_sums
from billing.rules.money import Money
from billing.rules.period import label
from clusters import open_runs, usage
from portal.tenants.models import Ownership, Tenant

log = structlog.get_logger("billing.closing")


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


class _Rehearsed(Exception):  # noqa: N818 - carries the outcome out of the transaction that it undoes
    def __init__(self, closed: Closed) -> None:
        self.closed = closed


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
    for tenant in tenants:
        try:
            closed = _close_one(tenant, year, month, moment, accept_incomplete, rehearse=rehearse)
        except _Rehearsed as end:
            closed = end.closed
        except (_Blocked, statements.MixedCurrenciesError) as block:
            closed = Closed(tenant.slug, Outcome.BLOCKED, reason=str(block))
        except Exception as error:  # whatever it is, the other tenants are closed
            log.exception("close failed", tenant=tenant.slug, month=f"{year}-{month:02d}")
            closed = Closed(tenant.slug, Outcome.FAILED, reason=f"{type(error).__name__}: {error}".strip())
        if progress is not None:
            progress(closed)
        yield closed


def _close_one(
    tenant: Tenant, year: int, month: int, moment: datetime, accept_incomplete: str, *, rehearse: bool
) -> Closed:
    with transaction.atomic():
        tenant = invoicing.lock(tenant)
        period = calendar.starting_in(tenant=tenant, year=year, month=month)
        if period is None:
            closed = Closed(
                tenant.slug, Outcome.NOTHING, reason="No period of the tenant starts in that month."
            )
        else:
            closed = _close_period(tenant, period, moment, accept_incomplete)
            closed = replace(closed, note=_vanished(tenant, period))
        if rehearse:
            raise _Rehearsed(closed)
    return closed


def _close_period(tenant: Tenant, period: BillingPeriod, moment: datetime, accept_incomplete: str) -> Closed:
    standing = invoicing.standing(tenant=tenant, period=period)
    if standing is not None and standing.state == InvoiceState.ISSUED:
        return _closed(tenant, standing, Outcome.ALREADY)
    incomplete = _gates(tenant, period, moment)
    if incomplete and not accept_incomplete:
        raise _Blocked(f"{incomplete} Import the rest, or give a reason with --accept-incomplete.")
    terms = {"accepted_incomplete": accept_incomplete, "incomplete": incomplete} if incomplete else {}
    invoice = invoicing.draft_locked(tenant=tenant, period=period, standing=standing, terms=terms)
    if invoice is not None and invoice.total < 0:
        return _carry(tenant, period, invoice, moment)
    if invoice is not None:
        invoice = invoicing.issue_locked(tenant=tenant, invoice=invoice, on=_local_day(moment, period))
    _mark_closed(period, moment)
    CloseProof.objects.create(
        period=period,
        tenant=tenant,
        closed_at=moment,
        accepted_incomplete=accept_incomplete if incomplete else "",
        sums=tenant_sums(tenant=tenant, period=period),
    )
    return _closed(tenant, invoice, Outcome.ISSUED if invoice else Outcome.NOTHING)


def _carry(tenant: Tenant, period: BillingPeriod, invoice: Invoice, moment: datetime) -> Closed:
    """Corrections exceed the period's charges: no invoice says so, the next one takes all of it up."""
    credit = Money.from_minor(-invoice.total, invoice.currency)
    invoicing.discard(invoice=invoice)
    _mark_closed(period, moment)
    return Closed(
        tenant.slug,
        Outcome.CARRIED,
        reason=f"Corrections of earlier periods exceed this period's charges by {credit.text} {credit.currency}; "
        f"credit notes are not available yet, so the next invoice takes the difference up.",
    )


def _mark_closed(period: BillingPeriod, moment: datetime) -> None:
    BillingPeriod.objects.filter(pk=period.pk).update(closed_at=moment)


def _gates(tenant: Tenant, period: BillingPeriod, moment: datetime) -> str:
    """Raise what blocks whatever the operator says; return what they may accept."""
    name = label(calendar.as_rule(period), ZoneInfo(period.timezone))
    if period.end > moment:
        raise _Blocked(f"{name} runs until {period.end:%Y-%m-%d %H:%M} UTC; close it after that.")
    _refuse_open_usage(tenant, period)
    behind = usage.incomplete_clusters(_accounts(tenant, period), until=period.end)
    if not behind:
        return ""
    listed = ", ".join(
        f"{cluster} is complete through {f'{through:%Y-%m-%d %H:%M} UTC' if through else 'nothing yet'}"
        for cluster, through in behind
    )
    return f"{name} ends {period.end:%Y-%m-%d %H:%M} UTC, but {listed}."


def _accounts(tenant: Tenant, period: BillingPeriod) -> Any:
    """Ids of the accounts that the tenant owned in the period, as a query."""
    return Ownership.objects.filter(
        Q(since__isnull=True) | Q(since__lt=period.end),
        Q(until__isnull=True) | Q(until__gt=period.start),
        tenant=tenant,
    ).values_list("account", flat=True)


def _vanished(tenant: Tenant, period: BillingPeriod) -> str:
    """A sentence where runs of the period are open and their scheduler has lost them."""
    found = open_runs.vanished_of(_accounts(tenant, period), since=period.start, until=period.end)
    if not found.runs or found.until is None:
        return ""
    until = f"{found.until:%Y-%m-%d %H:%M} UTC"
    if found.runs == 1:
        return f"1 run is open here but the scheduler no longer knows it: it is billed until {until}."
    return (
        f"{found.runs} runs are open here but the scheduler no longer knows them: they are billed until {until} "
        f"at the latest."
    )


def _refuse_open_usage(tenant: Tenant, period: BillingPeriod) -> None:
    """Raise for an earlier period with usage that is not closed, and for usage that no price covers."""
    unclosed = Q(period__end__lte=period.start, period__closed_at__isnull=True, units__gt=0)
    totals = PeriodTotal.objects.filter(tenant=tenant, period__end__lte=period.end)
    if not totals.filter(Q(verdict=Verdict.UNPRICED) | unclosed & Q(verdict=Verdict.CHARGED)).exists():
        return
    earlier = (
        totals.filter(unclosed, verdict__in=(Verdict.CHARGED, Verdict.UNPRICED))
        .select_related("period")
        .order_by("period__start")
        .first()
    )
    if earlier is not None:
        before = label(calendar.as_rule(earlier.period), ZoneInfo(earlier.period.timezone))
        raise _Blocked(f"{before} has usage and is not closed: close it first.")
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


def _closed(tenant: Tenant, invoice: Invoice | None, outcome: Outcome, reason: str = "") -> Closed:
    if invoice is None:
        return Closed(tenant.slug, outcome, reason=reason)
    return Closed(
        tenant.slug, outcome, invoice.number or "", Money.from_minor(invoice.total, invoice.currency), reason
    )


def _local_day(moment: datetime, period: BillingPeriod) -> date:
    return moment.astimezone(ZoneInfo(period.timezone)).date()
