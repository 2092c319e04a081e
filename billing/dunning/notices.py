"""Which letters are due: each is a row with a key of what it is about, so that it is written once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta

from django.db.models import CharField, Exists, OuterRef, QuerySet, Value
from django.db.models.functions import Cast, Concat

from billing.dunning.overdue_invoices import Late
from billing.models import (
    AttemptState,
    Letter,
    LetterKind,
    LetterState,
    PaymentAttempt,
    Suspension,
)
from billing.receivables.dunning_policies import Policies
from billing.rules.dunning import Policy, Step, morning, timeline

BATCH = 500
RECENT = timedelta(days=14)
"""So long what happened is still news: a refusal, a suspension."""
_KINDS = {
    Step.PAST_DUE: LetterKind.PAST_DUE,
    Step.REMINDER: LetterKind.REMINDER,
    Step.ANNOUNCE: LetterKind.ANNOUNCE,
}


def write(letters: Iterable[Letter]) -> int:
    """Keep them, to be sent; those that were written already stay as they are. How many were asked for."""
    rows = list(letters)
    Letter.objects.bulk_create(rows, batch_size=BATCH, ignore_conflicts=True)
    return len(rows)


def by_the_calendar(late: Late, policy: Policy, *, moment: datetime) -> list[Letter]:
    """What the days that have passed ask for and is not written yet: the last step of it, and an announcement always.

    Steps that came and went while nothing ran, or while it was paused, are kept as not needed any more: nobody is
    to have three letters at once.
    """
    if not policy.letters:
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
        rows.append(_letter(late, _KINDS[mark.step], mark.number, moment, stale=stale))
    return rows


def _is_written(late: Late, step: Step, number: int) -> bool:
    if step is Step.REMINDER:
        return number <= late.reminders
    return late.past_due_told if step is Step.PAST_DUE else late.announced


def _letter(late: Late, kind: LetterKind, number: int, moment: datetime, *, stale: bool) -> Letter:
    return Letter(
        tenant_id=late.tenant,
        invoice_id=late.pk,
        kind=kind,
        step=number,
        key=_key(late, kind, number),
        told={"crossing": late.crossing} if late.crossing else {},
        made_at=moment,
        not_before=moment,
        state=LetterState.SKIPPED if stale else LetterState.WAITING,
        why="A later step had been reached before it could be written." if stale else "",
    )


def _key(late: Late, kind: LetterKind, number: int) -> str:
    if kind is LetterKind.ANNOUNCE:
        return f"{kind}:{late.pk}:{late.announcements}"
    again = f":{late.crossing}" if late.crossing else ""  # a payment of it went back: its steps begin anew
    return f"{kind}:{late.pk}:{number}{again}"


def of_attempts(late: Iterable[Late], policies: Policies, *, moment: datetime) -> Iterator[Letter]:
    """Of payments that were refused, or that a bank asks its customer about: off session, where nobody saw it."""
    by_invoice = {each.pk: each for each in late if not each.rests and not each.under_way}
    for attempt in _refused(moment).filter(invoice__isnull=False):
        invoice = attempt.invoice
        if invoice is None or invoice.due_on is None:
            continue
        each = by_invoice.get(invoice.pk)
        rested = each is None and invoice.due_on < moment.date() - timedelta(days=1)
        if rested or not policies.of(attempt.tenant_id, invoice.due_on).letters:
            continue
        asks = attempt.state == AttemptState.NEEDS_ACTION
        yield _of_attempt(attempt, LetterKind.CONFIRM if asks else LetterKind.REFUSED, moment)


def of_top_ups(policies: Policies, *, moment: datetime) -> Iterator[Letter]:
    """Of automatic top-ups whose payment was refused: nothing is bought by itself any more."""
    for attempt in _refused(moment).filter(top_up__crossing__isnull=False):
        if policies.of(attempt.tenant_id, moment.date()).letters:
            yield _of_attempt(attempt, LetterKind.TOP_UP, moment)


def _refused(moment: datetime) -> QuerySet[PaymentAttempt]:
    rows = PaymentAttempt.objects.filter(
        ~Exists(Letter.objects.filter(attempt=OuterRef("pk"))),
        state__in=(AttemptState.FAILED, AttemptState.NEEDS_ACTION),
        link__isnull=True,
        asked_by="",
        made_at__gte=moment - RECENT,
    )
    return rows.select_related("invoice", "tenant").order_by("made_at")


def _of_attempt(attempt: PaymentAttempt, kind: LetterKind, moment: datetime) -> Letter:
    """It waits for the morning, when people are up, and goes with what else there is to say."""
    zone = attempt.tenant.zone
    return Letter(
        tenant_id=attempt.tenant_id,
        invoice=attempt.invoice,
        attempt=attempt,
        kind=kind,
        key=f"attempt:{attempt.pk}",
        made_at=moment,
        not_before=max(moment, morning(moment.astimezone(zone).date(), zone)),
    )


def of_suspension(
    row: Suspension,
    kind: LetterKind,
    policies: Policies,
    *,
    moment: datetime,
    blocked: Sequence[str] = (),
) -> None:
    """That it began, or is over; where the policy writes letters at all. `blocked`: accounts that stay so."""
    day: date = row.invoice.due_on or moment.date()
    if policies.of(row.tenant_id, day).letters:
        write(
            [
                Letter(
                    tenant_id=row.tenant_id,
                    invoice=row.invoice,
                    kind=kind,
                    key=f"{kind}:{row.pk}",
                    told={"suspension": row.pk, "blocked": list(blocked)},
                    made_at=moment,
                    not_before=moment,
                )
            ]
        )


def was_told(kind: LetterKind) -> Exists:
    """Of the outer query's suspension: whether the tenant was written that it began, or is over."""
    key = Concat(Value(f"{kind}:"), Cast(OuterRef("pk"), CharField()))
    return Exists(Letter.objects.filter(key=key))
