"""One pass over quotas: what has reached a threshold, or is back under it, since the pass before, and who is told.

A pass looks at those tenants for whom something was rated since, or whose time has come: where nothing happened it
asks two questions and ends. All that it finds is one transaction a batch of tenants: killed anywhere, it has told
nothing, and the next pass does the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from django.db import transaction

from billing.models import (
    Quota,
    QuotaChange,
    QuotaCrossing,
    QuotaEvery,
    QuotaPeriod,
    QuotaReview,
)
from billing.quotas import debts, demands, figures, notices, plan_quotas
from billing.quotas.figures import Figure
from billing.quotas.quotas import list_quotas
from billing.quotas.thresholds import Outcome, compare
from billing.rules import quotas as rules
from billing.rules.money import rounded_text
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType
from portal.core.locks import Work, alone

BATCH = 50
"""Tenants of one transaction: what it holds of each is given back with it."""
LONGEST = timedelta(hours=1)
"""After so long quotas are looked at though nothing was rated: another price may hold, or credit was given."""
SHORTEST = timedelta(seconds=20)
LATE = timedelta(days=1)
"""Usage of days so long before the last pass, or longer, is late when it is new."""
LETTING_GO = timedelta(seconds=30)
"""So often a rolling window with a threshold that stands is looked at: it lets go without any new usage."""


@dataclass(slots=True)
class ReviewTally:
    """What a pass did, in numbers."""

    tenants: int = 0
    quotas: int = 0
    crossed: int = 0
    cleared: int = 0
    notices: int = 0


def review_quotas(*, moment: datetime) -> ReviewTally:
    """Look at all that is due. Of two at once, one does nothing; run again, nothing is told twice.

    Must not be called inside a transaction.
    """
    tally = ReviewTally()
    with alone(Work.REVIEWING_QUOTAS) as ours:
        while ours and (due := _list_due(moment)):
            with transaction.atomic():
                _review(due, tally, moment)
            if len(due) < BATCH:
                break
    return tally


def _list_due(moment: datetime) -> list[int]:
    """Tenants whose quotas are to be looked at, the longest waiting first. Two queries."""
    changed = QuotaChange.objects.order_by("tenant").values_list("tenant", flat=True).distinct()[:BATCH]
    reviews = QuotaReview.objects.filter(next_at__lte=moment).order_by("next_at", "tenant")
    due = dict.fromkeys([*changed, *reviews.values_list("tenant", flat=True)[:BATCH]])
    return list(due)[:BATCH]


def _review(tenants: Collection[int], tally: ReviewTally, moment: datetime) -> None:
    changes = list(QuotaChange.objects.filter(tenant__in=tenants).values_list("pk", flat=True))
    changes_of_plans = plan_quotas.follow_plans(tenants, moment=moment)
    debts.follow_debts(tenants, moment=moment)
    listed = list_quotas().filter(tenant__in=tenants).select_related(None)
    quotas = list(listed.prefetch_related("tenant", "project", "borrows_from"))  # each of these once
    now = figures.load_figures(quotas, moment=moment)
    before = _load_newest_periods(quotas)
    crossings = _load_crossings(quotas, now, moment)
    outcomes = [
        compare(quota, now[quota.pk], before.get(quota.pk), crossings.get(quota.pk, ()), moment=moment)
        for quota in quotas
    ]
    outcomes = _with_late(outcomes, before)
    _save(outcomes, moment)
    demands.demand_blocks(outcomes, tenants=tenants, moment=moment)
    tally.notices += notices.write_notices(outcomes, moment=moment)
    _record_events(outcomes)
    _plan_next(tenants, outcomes, changes_of_plans, moment)
    QuotaChange.objects.filter(pk__in=changes).delete()
    tally.tenants += len(tenants)
    tally.quotas += len(quotas)
    tally.crossed += sum(len(one.crossed) for one in outcomes)
    tally.cleared += sum(len(one.cleared) for one in outcomes)


def _load_newest_periods(quotas: Sequence[Quota]) -> dict[int, QuotaPeriod]:
    """By quota the period that was looked at last."""
    rows = QuotaPeriod.objects.filter(quota__in=quotas).order_by("quota", "-start").distinct("quota")
    rows = rows.only("quota", "start", "evaluated_at")
    return {row.quota_id: row for row in rows}


def _load_crossings(
    quotas: Sequence[Quota], now: Mapping[int, Figure], moment: datetime
) -> dict[int, list[QuotaCrossing]]:
    """By quota those that stand, those of its present period, and those of the last day."""
    starts = {quota.pk: period_start(quota, now[quota.pk]) for quota in quotas}
    rows = QuotaCrossing.objects.filter(quota__in=quotas, start__gte=min(starts.values(), default=moment))
    rows |= QuotaCrossing.objects.filter(quota__in=quotas, at__gt=moment - timedelta(days=1))
    by_quota: dict[int, list[QuotaCrossing]] = defaultdict(list)
    for row in rows.order_by("pk"):
        by_quota[row.quota_id].append(row)
    return by_quota


def period_start(quota: Quota, figure: Figure) -> datetime:
    """By what a period is known: of a rolling window, which has none, the quota's own beginning."""
    return quota.created_at if quota.every == QuotaEvery.ROLLING else figure.window.start


def _with_late(outcomes: Sequence[Outcome], before: Mapping[int, QuotaPeriod]) -> list[Outcome]:
    """Say of what was crossed whether days long before the last pass suffice for it: then their usage came late."""
    crossed = {
        one.quota.pk: one
        for one in outcomes
        if one.crossed and _was_seen(one, before) and not one.quota.lends
    }
    if not crossed:
        return list(outcomes)
    then = figures.load_figures_until(
        [(one.quota, one.figure.window, before[pk].evaluated_at - LATE) for pk, one in crossed.items()]
    )
    return [
        replace(one, late_level=then[one.quota.pk]) if one.quota.pk in crossed else one for one in outcomes
    ]


def _was_seen(one: Outcome, before: Mapping[int, QuotaPeriod]) -> bool:
    earlier = before.get(one.quota.pk)
    return earlier is not None and earlier.start == one.start and one.quota.every != QuotaEvery.ROLLING


def _save(outcomes: Sequence[Outcome], moment: datetime) -> None:
    periods = [
        QuotaPeriod(
            tenant_id=one.quota.tenant_id,
            quota=one.quota,
            start=one.start,
            end=None if one.quota.every == QuotaEvery.ROLLING else one.figure.window.end,
            amount=one.quota.amount,
            carried=decimal(one.figure.carried),
            borrowable=decimal(one.figure.borrowable),
            used=decimal(one.figure.used),
            counted_on=decimal(one.figure.counted_on),
            forecast=None if one.figure.forecast is None else decimal(one.figure.forecast),
            as_of=one.figure.as_of,
            evaluated_at=moment,
        )
        for one in outcomes
    ]
    QuotaPeriod.objects.bulk_create(
        periods,
        update_conflicts=True,
        unique_fields=["quota", "start"],
        update_fields=[
            "end",
            "amount",
            "carried",
            "borrowable",
            "used",
            "counted_on",
            "forecast",
            "as_of",
            "evaluated_at",
        ],
    )
    QuotaCrossing.objects.bulk_create(crossing for one in outcomes for crossing in one.new_rows(moment))
    cleared = [row.pk for one in outcomes for row in (*one.cleared, *one.dropped)]
    if cleared:
        QuotaCrossing.objects.filter(pk__in=cleared).update(cleared_at=moment)


def decimal(value: Fraction) -> Decimal:
    """To twelve decimals, as it is kept."""
    return Decimal(rounded_text(value, 12))


def _record_events(outcomes: Sequence[Outcome]) -> None:
    events.record_many(
        Fact(
            type=EventType.QUOTA_THRESHOLD,
            kind="quo",
            key=one.quota.pk,
            state=state,
            tenant=one.quota.tenant_id,
        )
        for one in outcomes
        for state in one.event_states()
    )


def _plan_next(
    tenants: Collection[int],
    outcomes: Sequence[Outcome],
    changes_of_plans: Mapping[int, datetime],
    moment: datetime,
) -> None:
    """When each tenant's quotas are looked at next, though nothing is rated until then."""
    times = dict.fromkeys(tenants, moment + LONGEST)
    ends = demands.load_released(tenants, moment)
    for tenant, at in (*ends.items(), *changes_of_plans.items()):
        times[tenant] = min(times[tenant], at)
    for one in outcomes:
        times[one.quota.tenant_id] = min(times[one.quota.tenant_id], _next_look(one, moment))
    rows = [QuotaReview(tenant_id=tenant, next_at=at) for tenant, at in sorted(times.items())]
    QuotaReview.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["tenant"], update_fields=["next_at"]
    )


def _next_look(one: Outcome, moment: datetime) -> datetime:
    """At the end of its period, and before what runs now can reach the next threshold."""
    at = moment + LONGEST
    holds = one.stands or demands.is_over(one)
    if holds and (one.quota.every == QuotaEvery.ROLLING or one.figure.stale_since):
        at = moment + LETTING_GO
    if one.quota.every != QuotaEvery.ROLLING and one.figure.window.end > moment:
        at = min(at, one.figure.window.end)
    level = rules.next_level(
        one.figure.used,
        amount=one.amount,
        thresholds=one.quota.thresholds,
        repeat_every=one.quota.repeat_every,
    )
    ways = [(level, one.figure.speed)]
    if one.limit > one.figure.used:
        ways.append((one.limit, max(one.figure.pool_speed, one.figure.speed)))  # others may use the pool up
    for goal, speed in ways:
        if speed > 0 and goal is not None:
            # Half of the way, since a further tier can cost more than the first, by which the speed is told.
            seconds = (goal - one.figure.used) / speed / 2
            if seconds < LONGEST.total_seconds():
                at = min(at, moment + max(SHORTEST, timedelta(seconds=int(seconds))))
    return at
