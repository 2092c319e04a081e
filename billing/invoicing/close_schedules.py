"""Months that close by themselves: on which days, what is due, and what comes next."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import IntegrityError, transaction
from django.db.models import Exists, Min, OuterRef, Subquery

from billing.catalog import billing_periods
from billing.invoicing import close_runs
from billing.invoicing.close_runs import RunError
from billing.invoicing.messages import SENTENCES
from billing.models import BillingPeriod, CloseKind, CloseRun, CloseSchedule, Invoice, ScheduledClose
from billing.models.closes import FIRST_DAY, LAST_DAY
from billing.rating import reratings
from billing.rules.period import midnight
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from portal.errors import CodedError

BY = "schedule"
"""Who acts, in runs and in the history of changes."""


class ScheduleError(CodedError):
    """A month cannot be scheduled so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Step:
    """A preview or an issue of one period that the schedule has not asked for yet."""

    period: BillingPeriod
    month: str
    kind: CloseKind
    due: datetime


@dataclass(frozen=True, slots=True, order=True)
class Upcoming:
    """What the schedule does of a month on one day, and of how many tenants."""

    day: date
    month: str
    kind: CloseKind
    tenants: int


@transaction.atomic
def set_schedule(
    *, tenant: Tenant | None, preview_day: int | None, issue_day: int | None, since: date
) -> CloseSchedule:
    """Have the periods of the tenant, or of everyone without a schedule of their own, close on these days.

    None: by hand. Set again, nothing changes. Raises ScheduleError for days that cannot be.
    """
    for day in (preview_day, issue_day):
        if day is not None and not FIRST_DAY <= day <= LAST_DAY:
            raise ScheduleError("day-not-in-every-month", day=day, first=FIRST_DAY, last=LAST_DAY)
    if preview_day and issue_day and preview_day > issue_day:
        raise ScheduleError("preview-after-issue", preview=preview_day, issue=issue_day)
    existing = CloseSchedule.objects.select_for_update(of=("self",)).filter(tenant=tenant).first()
    row = CloseSchedule(tenant=tenant) if existing is None else existing
    days = (preview_day, issue_day, since)
    if existing is None or days != (row.preview_day, row.issue_day, row.since):
        row.preview_day, row.issue_day, row.since = days
        row.save()
    return row


def remove_schedule(*, tenant: Tenant | None) -> None:
    """The tenant's own goes: everyone's holds for it again. Everyone's goes: nothing closes by itself."""
    for row in CloseSchedule.objects.filter(tenant=tenant):
        row.delete()


def request_due_runs(*, moment: datetime) -> list[CloseRun]:
    """Ask for one run of each month and kind that has tenants whose day has come; workers take them up.

    By two at once, or again after a kill, each period is asked for once of each kind. What comes of it waits for
    people: it is not asked for again. A month that is being closed at this moment is left to the next call, and so
    is who has usage that is being rated again.
    """
    due: dict[tuple[str, CloseKind], list[BillingPeriod]] = defaultdict(list)
    steps = [step for step in _list_steps(moment=moment, making=True) if step.due <= moment]
    rerated = reratings.find_tenants({step.period.tenant_id for step in steps})
    for step in steps:
        if step.period.tenant_id not in rerated:
            due[step.month, step.kind].append(step.period)
    runs = []
    for (month, kind), periods in sorted(due.items(), key=lambda item: item[0]):
        try:
            runs.append(_request_run(month, kind, periods, moment))
        except (RunError, IntegrityError):
            continue  # somebody else closes the month, or has asked for these periods just now
    return runs


@transaction.atomic
def _request_run(month: str, kind: CloseKind, periods: Sequence[BillingPeriod], moment: datetime) -> CloseRun:
    tenants = {period.tenant_id for period in periods}
    with acting_as(BY):
        run = close_runs.request_run(month=month, kind=kind, by=BY, moment=moment, scheduled=len(tenants))
        ScheduledClose.objects.bulk_create(
            ScheduledClose(tenant_id=period.tenant_id, period=period, kind=kind, run=run)
            for period in periods
        )
    return run


def list_upcoming(*, moment: datetime) -> list[Upcoming]:
    """What comes next, of the periods that have begun, the soonest first. Nothing is written."""
    steps = _list_steps(moment=moment, making=False)
    counts = Counter(
        (step.due.astimezone(ZoneInfo(step.period.timezone)).date(), step.month, step.kind) for step in steps
    )
    return sorted(Upcoming(*key, tenants=count) for key, count in counts.items())


def _list_steps(*, moment: datetime, making: bool) -> Iterator[Step]:
    """Of all periods that have begun and are not closed. The periods that are lacking are made, or supposed."""
    schedules = _load_schedules()
    if not schedules:
        return
    since = {tenant: midnight(row.since, zone=tenant.zone) for tenant, row in schedules.items()}
    # A tenant without a plan has had nothing to bill before its first usage, which makes its period.
    reach = [
        (
            tenant,
            min(moment, max(getattr(tenant, "first", None) or moment, since[tenant])),
            _extend_over(moment),
        )
        for tenant in schedules
    ]
    lacking: list[BillingPeriod] = []
    if making:
        billing_periods.ensure_spans(reach)
    else:
        lacking = billing_periods.missing_periods(reach)
    open_periods = _open_periods(schedules, moment=moment, since=min(since.values()))
    done: dict[int, set[CloseKind]] = defaultdict(set)
    scheduled = ScheduledClose.objects.filter(period__in=[period.pk for period, _ in open_periods])
    for pk, kind in scheduled.values_list("period", "kind"):
        done[pk].add(CloseKind(kind))
    rows = {tenant.pk: row for tenant, row in schedules.items()}
    for period, zone_before in [
        *open_periods,
        *((period, "") for period in lacking if period.start <= moment),
    ]:
        year, month = billing_periods.month_of(period, zone_before)
        for step, due in _next_steps(rows[period.tenant_id], period, done[period.pk], moment):
            yield Step(period, f"{year:04d}-{month:02d}", step, due)


def _load_schedules() -> Mapping[Tenant, CloseSchedule]:
    """Of each tenant that has one, its own or everyone's. Two queries."""
    rows = {row.tenant_id: row for row in CloseSchedule.objects.all()}
    if not any(row.preview_day or row.issue_day for row in rows.values()):
        return {}
    tenants = Tenant.objects.annotate(first=Min("subscriptions__since"))
    chosen = {tenant: rows.get(tenant.pk, rows.get(None)) for tenant in tenants}
    return {tenant: row for tenant, row in chosen.items() if row and (row.preview_day or row.issue_day)}


def _extend_over(moment: datetime) -> datetime:
    """So that the period that holds the moment is covered."""
    return moment + timedelta(seconds=1)


def _open_periods(
    schedules: Mapping[Tenant, CloseSchedule], *, moment: datetime, since: datetime
) -> list[tuple[BillingPeriod, str]]:
    """With the zone of the period before. One whose invoice was made void is open again, and people decide on it."""
    numbered = Invoice.objects.filter(period=OuterRef("pk"), number__isnull=False)
    before = BillingPeriod.objects.filter(tenant=OuterRef("tenant"), end=OuterRef("start")).values("timezone")
    rows = BillingPeriod.objects.filter(
        ~Exists(numbered), tenant__in=schedules, closed_at__isnull=True, start__lte=moment, end__gt=since
    ).annotate(zone_before=Subquery(before[:1]))
    return [(row, getattr(row, "zone_before", None) or "") for row in rows.order_by("start", "tenant")]


def _next_steps(
    row: CloseSchedule, period: BillingPeriod, done: set[CloseKind], moment: datetime
) -> Iterator[tuple[CloseKind, datetime]]:
    """What is left to do of the period. A preview is pointless once it is issued, or about to be."""
    last = billing_periods.last_day(period)
    if last < row.since or CloseKind.ISSUE in done:
        return
    zone = ZoneInfo(period.timezone)
    issue = midnight(last + timedelta(days=row.issue_day), zone=zone) if row.issue_day else None
    if issue is not None:
        yield CloseKind.ISSUE, issue
    if row.preview_day and not done and (issue is None or issue > moment):
        yield CloseKind.PREVIEW, midnight(last + timedelta(days=row.preview_day), zone=zone)
