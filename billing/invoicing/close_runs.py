"""Closes that operators or the schedule ask for: kept, done by one worker at a time, gone on with where one died."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, QuerySet, Sum

from billing.invoicing import close_reports, close_summary, month_close
from billing.invoicing.close_results import STUCK, Outcome, TenantClose
from billing.invoicing.messages import SENTENCES
from billing.models import CloseKind, CloseResult, CloseRun, SignUp, SignUpState
from billing.rules.errors import RuleError
from billing.rules.money import Money
from billing.rules.period import parse_month
from portal.core import locks, pagination
from portal.core.audit import acting_as
from portal.core.events import events
from portal.core.events.models import EventType
from portal.core.locks import Work
from portal.core.pagination import Page
from portal.core.tenants.models import Tenant
from portal.errors import CodedError

ATTEMPTS = 5
"""Workers that may die over the same tenants of a run before it is given up."""


class RunError(CodedError):
    """A close cannot be asked for now; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Tally:
    """How many tenants of a run came out so, and what their documents come to, in minor units of one currency.

    What stands beside the invoice of a period, such as a credit note, is a tally of no tenants. One of which another
    period of the month is stuck counts twice: by that, and by what is issued.
    """

    outcome: str
    currency: str
    tenants: int
    total: int


def request_run(
    *,
    month: str,
    kind: CloseKind,
    by: str,
    moment: datetime,
    accept_incomplete: str = "",
    scheduled: int = 0,
) -> CloseRun:
    """Keep that the month is to be previewed or closed for all tenants, and when that was asked for.

    `scheduled`: for so many alone, whom the caller names by `ScheduledClose` in the same transaction.
    The results of the month's runs before are dropped. Raises RunError while another run of the month
    is under way, and for a month that is none or has not begun.
    """
    try:
        year, number = parse_month(month)
    except RuleError as error:
        raise RunError(error.code, **error.values) from error
    if not (2000, 1) <= (year, number) <= (moment.year, moment.month):
        raise RunError("month-not-closable", month=month)
    try:
        with transaction.atomic(), acting_as(by, why=accept_incomplete):
            run = CloseRun.objects.create(
                month=month,
                kind=kind,
                requested_by=by,
                requested_at=moment,
                accept_incomplete=accept_incomplete.strip(),
                scheduled=scheduled > 0,
                total=scheduled or list_billable().count(),
            )
            CloseResult.objects.filter(run__month=month).exclude(run=run).delete()
    except IntegrityError as error:
        other = CloseRun.objects.unfinished().filter(month=month).first()
        if other is None:
            raise RunError("close-just-ended") from error
        code = "preview-under-way" if other.kind == CloseKind.PREVIEW else "close-under-way"
        raise RunError(code, person=other.requested_by, month=month) from error
    return run


def perform_run(run_id: int, *, clock: Callable[[], datetime]) -> bool:
    """Close tenant by tenant, and keep what becomes of each; whether this call did anything.

    Called again, or by two workers at once, it goes on where it ended. What a worker had issued when it
    died is found as issued already. Each tenant is closed as of the clock, however long ago that was asked for:
    documents are dated, and wallets pay, when it is done. A month that is issued waits for those before it, which
    another worker may be at.
    """
    with locks.alone(Work.CLOSING, run_id) as ours:
        run = CloseRun.objects.unfinished().filter(pk=run_id).first() if ours else None
        if run is None or _has_run_before(run):
            return False
        closed_tenants = run.results.values("tenant")
        waiting = list(_list_tenants(run).exclude(pk__in=closed_tenants).order_by("slug"))
        run.started_at, run.attempts = run.started_at or clock(), run.attempts + 1
        run.total = run.done + len(waiting)
        if run.attempts > ATTEMPTS:
            run.error = "It was begun several times and never ended: the worker's log says why. Ask again."
            waiting = []
        with acting_as(run.requested_by, why=run.accept_incomplete):
            run.save()
            for start in range(0, len(waiting), month_close.TOGETHER):
                _close_tenants(run, waiting[start : start + month_close.TOGETHER], clock())
            run.ended_at = clock()
            with transaction.atomic():
                run.save()
                _record_end(run)
                if run.scheduled:
                    close_reports.write_report(run, count_outcomes(run))
    return True


def _record_end(run: CloseRun) -> None:
    state = "failed" if run.error else str(run.kind)
    events.record(EventType.CLOSE_FINISHED, kind="close", key=run.pk, state=state, tenant=None)


def list_billable() -> QuerySet[Tenant]:
    """All tenants but those of sign-ups that came to nothing yet, or to nothing at all: they have nothing to bill.

    One that has been put on a plan, or was given an account, is among them all the same.
    """
    never_begun = SignUp.objects.exclude(state=SignUpState.ACTIVE)
    idle = never_begun.filter(tenant__subscriptions=None, tenant__ownerships=None)
    return Tenant.objects.exclude(pk__in=idle.values("tenant"))


def _list_tenants(run: CloseRun) -> QuerySet[Tenant]:
    if not run.scheduled:
        return list_billable()
    return Tenant.objects.filter(pk__in=run.scheduled_closes.values("tenant"))


def _has_run_before(run: CloseRun) -> bool:
    earlier = CloseRun.objects.unfinished().filter(kind=CloseKind.ISSUE, month__lt=run.month)
    return run.kind == CloseKind.ISSUE and earlier.exists()


def get_newest_run(month: str) -> CloseRun | None:
    """The last run of the month that was asked for."""
    return CloseRun.objects.filter(month=month).order_by("-pk").first()


def count_outcomes(run: CloseRun) -> list[Tally]:
    """Two queries."""
    rows = run.results.values("outcome", "currency").annotate(tenants=Count("id"), sum=Sum("total"))
    tallies = [
        Tally(row["outcome"], row["currency"], row["tenants"], int(row["sum"] or 0))
        for row in rows.order_by("outcome", "currency")
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            _DOCUMENT_TOTALS, {"stuck": sorted(STUCK), "issued": Outcome.ISSUED.value, "run": run.pk}
        )
        return tallies + [
            Tally(outcome, currency, tenants, Money.of(total, currency).minor)
            for outcome, currency, tenants, total in cursor.fetchall()
        ]


def count_blocks(run: CloseRun) -> list[tuple[str, int]]:
    """What blocks, by its code, and how many tenants; what blocks most is first. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_BLOCK_COUNTS, [run.pk])
        return [(code, tenants) for code, tenants in cursor.fetchall()]


def list_results(
    run: CloseRun, *, outcomes: Sequence[str] = (), code: str = "", after: str = "", size: int
) -> Page[CloseResult]:
    """The results behind the cursor `after`, by tenant."""
    matches = run.results.select_related("run", "tenant")
    if outcomes:
        matches = matches.filter(outcome__in=outcomes)
    if code:
        matches = matches.filter(details__blocks__contains=[{"code": code}])
    return pagination.page(matches, "id", after=after, size=size)


def _close_tenants(run: CloseRun, tenants: Sequence[Tenant], moment: datetime) -> None:
    year, month = parse_month(run.month)
    closed = list(
        month_close.close_month(
            tenants=tenants,
            year=year,
            month=month,
            moment=moment,
            accept_incomplete=run.accept_incomplete,
            preview=run.kind == CloseKind.PREVIEW,
        )
    )
    ids = {tenant.slug: tenant.pk for tenant in tenants}
    with transaction.atomic():
        CloseResult.objects.bulk_create([_make_result(run, ids[one.tenant], one) for one in closed])
        run.done, run.attempts = run.done + len(closed), 1
        run.save(update_fields=["done", "attempts"])


def _make_result(run: CloseRun, tenant: int, one: TenantClose) -> CloseResult:
    return CloseResult(
        run=run,
        tenant_id=tenant,
        outcome=one.outcome.value,
        number="" if run.kind == CloseKind.PREVIEW and one.outcome == "issued" else one.number,
        currency=one.total.currency if one.total else "",
        total=one.total.minor if one.total else None,
        details=close_summary.to_json(one, previewed=run.kind == CloseKind.PREVIEW),
    )


_DOCUMENT_TOTALS = """
SELECT CASE WHEN r.outcome = ANY (%(stuck)s) THEN %(issued)s ELSE r.outcome END, other ->> 'currency',
       count(DISTINCT r.id) FILTER (WHERE r.outcome = ANY (%(stuck)s)), sum((other ->> 'total')::numeric)
FROM billing_closeresult r, jsonb_array_elements(r.details -> 'related_documents') AS other
WHERE r.run_id = %(run)s GROUP BY 1, 2 ORDER BY 1, 2
"""
"""What stands beside a period that is stuck is issued."""

_BLOCK_COUNTS = """
SELECT block ->> 'code', count(*) FROM billing_closeresult r, jsonb_array_elements(r.details -> 'blocks') AS block
WHERE r.run_id = %s GROUP BY 1 ORDER BY 2 DESC, 1
"""
