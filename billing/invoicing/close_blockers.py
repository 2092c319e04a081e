"""What keeps a tenant's period from closing, each as a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from django.db.models import Q

from billing.catalog import billing_periods
from billing.invoicing import missing_usage, statements
from billing.invoicing.close_inputs import RatedPeriod
from billing.invoicing.close_results import Block
from billing.invoicing.missing_usage import Doubt
from billing.models import BillingPeriod, PendingApproval, PeriodTotal, Verdict
from billing.rating import reratings
from portal.core.tenants.models import Tenant


def find_blocks(
    tenant: Tenant,
    period: BillingPeriod,
    rated: Sequence[RatedPeriod],
    waiting: Sequence[PendingApproval],
    *,
    at: datetime,
    rerated: bool,
) -> Iterator[Block]:
    """What of the period blocks its close at that moment; what blocks a document of it is in `issue`.

    `waiting`: what is pending of earlier periods.

    Of a period that is not over nothing else is said, nor while usage is rated again: less of it may hold then.
    """
    if period.end > at:
        sentence = f"{_period_name(period)} runs until {period.end:%Y-%m-%d %H:%M} UTC; close it after that."
        yield Block("not-over", sentence)
        return
    if rerated:
        yield Block("rerating", f"{reratings.UNDER_WAY}: wait until that is done, and close again.")
        return
    unclosed = [
        rated_period for rated_period in rated if rated_period.end <= period.start and not rated_period.closed
    ]
    if waiting:
        yield Block(
            "earlier-pending-approval",
            f"{_period_name(waiting[0].period)} waits for approval and is not issued: approve it, or correct "
            "what is wrong, and close it first.",
        )
    elif any(rated_period.charged or rated_period.unpriced for rated_period in unclosed):
        yield from _find_earlier(tenant, unclosed)
    if any(rated_period.unpriced for rated_period in rated):
        yield from _find_unpriced(tenant, period)


def find_doubts(
    period: BillingPeriod,
    behind: Sequence[tuple[str, datetime | None]],
    doubted: Sequence[Doubt],
    *,
    now: datetime,
) -> list[Doubt]:
    """What usage may be missing; the operator may accept it with a reason."""
    return [*missing_usage.describe_lag(_period_name(period), period, behind, now=now), *doubted]


def block_for_doubts(open_doubts: Sequence[Doubt]) -> Block:
    """That usage may be missing, and nobody has accepted it."""
    missing, todo = (
        " ".join(doubt.fact for doubt in open_doubts),
        "; ".join(doubt.remedy for doubt in open_doubts),
    )
    sentence = f"{missing} {todo[0].upper()}{todo[1:]}, or give a reason with --accept-incomplete."
    return Block("incomplete", sentence)


def _find_earlier(tenant: Tenant, unclosed: Sequence[RatedPeriod]) -> Iterator[Block]:
    """The first earlier period with usage that is not closed: its own, or one of a tenant that it pays for."""
    earlier = (
        PeriodTotal.objects.filter(
            Q(payer=None, tenant=tenant) | Q(payer=tenant),
            period__in=[rated_period.period for rated_period in unclosed],
            units__gt=0,
            verdict__in=(Verdict.CHARGED, Verdict.UNPRICED),
        )
        .select_related("period", "tenant")
        .order_by("period__start")
        .first()
    )
    if earlier is not None:
        whose = "" if earlier.tenant == tenant else f" of {earlier.tenant.name}, which it pays for,"
        yield Block(
            "earlier-open",
            f"{_period_name(earlier.period)} has usage{whose} and is not closed: close it first.",
        )


def _find_unpriced(tenant: Tenant, period: BillingPeriod) -> Iterator[Block]:
    missing = statements.list_unpriced(tenant=tenant, period=period)
    if missing:
        listed = ", ".join(row.text for row in missing)
        sentence = f"No price covers {listed}: give the tenant a plan, or its plan a price, and close again."
        yield Block("unpriced", sentence)


def _period_name(period: BillingPeriod) -> str:
    return billing_periods.name(period)
