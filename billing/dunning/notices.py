"""Which notices are due: each is a row with a key of what it is about, so that it is written once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta

from django.db.models import CharField, Exists, OuterRef, QuerySet, Value
from django.db.models.functions import Cast, Concat

from billing.dunning.overdue_invoices import OverdueInvoice
from billing.models import (
    AttemptState,
    Notice,
    NoticeKind,
    NoticeState,
    PaymentAttempt,
    Suspension,
)
from billing.receivables.dunning_policies import Policies
from billing.rules.dunning_defaults import Policy, Step, morning, timeline

BATCH = 500
RECENT = timedelta(days=14)
"""So long what happened is still news: a refusal, a suspension."""
_KINDS = {
    Step.PAST_DUE: NoticeKind.PAST_DUE,
    Step.REMINDER: NoticeKind.REMINDER,
    Step.ANNOUNCE: NoticeKind.ANNOUNCE,
}


def write_notices(notices: Iterable[Notice]) -> int:
    """Keep them, to be sent; those that were written already stay as they are. How many were asked for."""
    rows = list(notices)
    Notice.objects.bulk_create(rows, batch_size=BATCH, ignore_conflicts=True)
    return len(rows)


def list_calendar_notices(late: OverdueInvoice, policy: Policy, *, moment: datetime) -> list[Notice]:
    """What the days that have passed ask for and is not written yet: the last step of it, and an announcement always.

    Steps that came and went while nothing ran, or while it was paused, are kept as not needed any more: nobody is
    to have three notices at once.
    """
    if not policy.emails:
        return []
    reached = [
        mark
        for mark in timeline(policy, due_on=late.due_on)
        if mark.day <= late.today and mark.step in _KINDS and not _is_written(late, mark.step, mark.number)
    ]
    if late.suspended:
        reached = [mark for mark in reached if mark.step is not Step.ANNOUNCE]
    announced = any(mark.step is Step.ANNOUNCE for mark in reached)
    rows = []
    for place, mark in enumerate(reached, 1):
        stale = mark.step is not Step.ANNOUNCE and (announced or place < len(reached))
        rows.append(_make_notice(late, _KINDS[mark.step], mark.number, moment, stale=stale))
    return rows


def _is_written(late: OverdueInvoice, step: Step, number: int) -> bool:
    if step is Step.REMINDER:
        return number <= late.reminders
    return late.past_due_notified if step is Step.PAST_DUE else late.announced


def _make_notice(
    late: OverdueInvoice, kind: NoticeKind, number: int, moment: datetime, *, stale: bool
) -> Notice:
    return Notice(
        tenant_id=late.tenant,
        invoice_id=late.pk,
        kind=kind,
        step=number,
        key=_notice_key(late, kind, number),
        details={"crossing": late.crossing} if late.crossing else {},
        created_at=moment,
        not_before=moment,
        state=NoticeState.SKIPPED if stale else NoticeState.WAITING,
        reason="A later step had been reached before it could be written." if stale else "",
    )


def _notice_key(late: OverdueInvoice, kind: NoticeKind, number: int) -> str:
    if kind is NoticeKind.ANNOUNCE:
        return f"{kind}:{late.pk}:{late.announcements}"
    again = f":{late.crossing}" if late.crossing else ""  # a payment of it went back: its steps begin anew
    return f"{kind}:{late.pk}:{number}{again}"


def list_attempt_notices(
    late: Iterable[OverdueInvoice], policies: Policies, *, moment: datetime
) -> Iterator[Notice]:
    """Of payments that were refused, or that a bank asks its customer about: off session, where nobody saw it."""
    by_invoice = {
        overdue.pk: overdue for overdue in late if not overdue.pause_reason and not overdue.under_way
    }
    for attempt in _list_refused(moment).filter(invoice__isnull=False):
        invoice = attempt.invoice
        if invoice is None or invoice.due_on is None:
            continue
        overdue = by_invoice.get(invoice.pk)
        rested = overdue is None and invoice.due_on < moment.date() - timedelta(days=1)
        if rested or not policies.of(attempt.tenant_id, invoice.due_on).emails:
            continue
        asks = attempt.state == AttemptState.NEEDS_ACTION
        yield _make_attempt_notice(attempt, NoticeKind.CONFIRM if asks else NoticeKind.REFUSED, moment)


def list_top_up_notices(policies: Policies, *, moment: datetime) -> Iterator[Notice]:
    """Of automatic top-ups whose payment was refused: nothing is bought by itself any more."""
    for attempt in _list_refused(moment).filter(top_up__crossing__isnull=False):
        if policies.of(attempt.tenant_id, moment.date()).emails:
            yield _make_attempt_notice(attempt, NoticeKind.TOP_UP, moment)


def _list_refused(moment: datetime) -> QuerySet[PaymentAttempt]:
    rows = PaymentAttempt.objects.filter(
        ~Exists(Notice.objects.filter(attempt=OuterRef("pk"))),
        state__in=(AttemptState.FAILED, AttemptState.NEEDS_ACTION),
        checkout__isnull=True,
        requested_by="",
        created_at__gte=moment - RECENT,
    )
    return rows.select_related("invoice", "tenant").order_by("created_at")


def _make_attempt_notice(attempt: PaymentAttempt, kind: NoticeKind, moment: datetime) -> Notice:
    """It waits for the morning, when people are up, and goes with what else there is to say."""
    zone = attempt.tenant.zone
    return Notice(
        tenant_id=attempt.tenant_id,
        invoice=attempt.invoice,
        attempt=attempt,
        kind=kind,
        key=f"attempt:{attempt.pk}",
        created_at=moment,
        not_before=max(moment, morning(moment.astimezone(zone).date(), zone)),
    )


def make_suspension_notice(
    row: Suspension,
    kind: NoticeKind,
    policies: Policies,
    *,
    moment: datetime,
    blocked: Sequence[str] = (),
) -> None:
    """That it began, or is over; where the policy writes notices at all. `blocked`: accounts that stay so."""
    day: date = row.invoice.due_on or moment.date()
    if policies.of(row.tenant_id, day).emails:
        write_notices(
            [
                Notice(
                    tenant_id=row.tenant_id,
                    invoice=row.invoice,
                    kind=kind,
                    key=f"{kind}:{row.pk}",
                    details={"suspension": row.pk, "blocked": list(blocked)},
                    created_at=moment,
                    not_before=moment,
                )
            ]
        )


def is_suspension_announced(kind: NoticeKind) -> Exists:
    """Of the outer query's suspension: whether the tenant was written that it began, or is over."""
    key = Concat(Value(f"{kind}:"), Cast(OuterRef("pk"), CharField()))
    return Exists(Notice.objects.filter(key=key))
