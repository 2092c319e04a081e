"""A run of reconciliation: read, adopt what was forgotten, compare, keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Min

from billing.models import (
    AttemptState,
    Difference,
    EventState,
    GatewayEvent,
    MovedCredit,
    MovedMoney,
    PaymentAttempt,
    Reconciliation,
)
from billing.payments import sync, webhook_events
from billing.payments.gateway_access import CollectionError, UnmatchedObjectError
from billing.payments.gateways.base import Charge, ChargeState, Gateway, GatewayError
from billing.reconciliation import comparison, differences, gateway_objects
from billing.reconciliation.comparison import Books
from billing.reconciliation.gateway_objects import There
from portal.core import locks
from portal.core.locks import Work

OVERLAP = timedelta(days=3)
"""So much of what was read before is read again: money settles days after it moved."""
FIRST = timedelta(days=31)  # how far the first run goes back
LONGEST = timedelta(days=180)  # how far back open differences are looked at again by themselves
NIGHT = 2  # o'clock in UTC
AGAIN = timedelta(hours=1)  # after a run that could not read

log = structlog.get_logger("billing.reconciliation")


def run(
    *,
    gateway: Gateway,
    moment: datetime,
    by: str,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Reconciliation:
    """Compare the books of both from three days before `since` to `until`; else from where all was compared.

    It moves no money. A charge of ours that this database does not know is adopted; everything else that differs is
    kept as a difference. Again, it finds the same, and changes nothing but the time. Raises GatewayError where the
    books cannot be read, CollectionError while another run is at work or for a window that is none.
    """
    until = until or moment
    begins = since - OVERLAP if since is not None else _since(moment)
    if begins >= until:
        raise CollectionError("comparison-empty")
    with locks.alone(Work.RECONCILING) as ours:
        if not ours:
            raise CollectionError("comparison-runs")
        row = Reconciliation.objects.create(since=begins, until=until, began_at=moment, requested_by=by)
        try:
            _run(row, gateway, moment)
        except GatewayError as error:
            # Not heeded: the rounds find out by themselves whether the key is refused for what they need.
            row.error, row.ended_at = str(error), moment
            row.save()
            raise
    return row


def is_due(*, moment: datetime) -> bool:
    """Whether the night's run is to be made: none has begun since 02:00 UTC, or it could not read an hour ago."""
    night = moment.replace(hour=NIGHT, minute=0, second=0, microsecond=0)
    if moment < night:
        night -= timedelta(days=1)
    runs = Reconciliation.objects.filter(began_at__gte=night, until__gte=night)
    if runs.filter(ended_at__isnull=False, error="").exists():
        return False
    return not runs.filter(began_at__gt=moment - AGAIN).exists()


def note(*, difference: Difference, text: str, by: str, moment: datetime) -> None:
    """Keep what somebody knows of a difference; another note takes its place, and the history has both."""
    if not text.strip():
        raise CollectionError("note-missing")
    with transaction.atomic():
        row = Difference.objects.select_for_update().get(pk=difference.pk)
        row.note, row.noted_by, row.noted_at = text.strip(), by, moment
        row.save()


def _since(moment: datetime) -> datetime:
    """From where all was compared, with the overlap; further back to what is still open."""
    begins = _compared_until(moment) - OVERLAP
    oldest = Difference.objects.filter(resolved_at=None).aggregate(at=Min("about_at"))["at"]
    if oldest is not None:
        begins = min(begins, max(oldest, moment - LONGEST) - OVERLAP)
    return begins


def _compared_until(moment: datetime) -> datetime:
    """Until when good runs follow each other without a gap: a later one, made by hand, compared nothing before it.

    No further back than 31 days before the first run, nor than 180 days.
    """
    good = Reconciliation.objects.filter(ended_at__isnull=False, error="")
    first = good.aggregate(at=Min("began_at"))["at"] or moment
    reached = max(first - FIRST, moment - LONGEST)
    for since, until in good.filter(until__gt=reached).order_by("since").values_list("since", "until"):
        if since > reached:
            break
        reached = max(reached, until)
    return min(reached, moment)


def _run(row: Reconciliation, gateway: Gateway, moment: datetime) -> None:
    there = gateway_objects.read(gateway=gateway, since=row.since, until=row.until)
    adopted, unplaced = _adopt(there, gateway, moment)
    charges = {*there.charges, *there.gone, *(movement.charge for movement in there.movements.values())}
    attempts = gateway_objects.attempts_of(charges)
    books = Books(there, attempts, unplaced, row.since, row.until, moment)
    mismatches = comparison.differences(books)
    with transaction.atomic():
        differences.keep_money(there, attempts)
        opened, resolved = differences.keep_differences(
            mismatches, since=row.since, until=row.until, moment=moment
        )
        row.ended_at = moment
        row.counts = {
            "charges": len(there.charges),
            "refunds": len(there.refunds),
            "disputes": len(there.disputes),
            "movements": len(there.movements),
            "payouts": len(there.payouts),
            "foreign": there.foreign,
            "adopted": adopted,
            "found": len(mismatches),
            "opened": opened,
            "resolved": resolved,
        }
        row.sums = _sums(there, attempts)
        row.save()
    log.info("reconciled", found=len(mismatches), opened=opened, resolved=resolved, adopted=adopted)


def _adopt(there: There, gateway: Gateway, moment: datetime) -> tuple[int, dict[str, str]]:
    """(how many charges got a row that they lacked, why others belong to nothing here).

    What a payment cost is taken over too, where it was not told yet when it succeeded.
    """
    attempts = gateway_objects.attempts_of(there.charges)
    adopted, unplaced = 0, {}
    for charge in there.charges.values():
        if (row := attempts.get(charge.id)) is not None:
            if row.state == AttemptState.SUCCEEDED and row.fee is None and charge.fee is not None:
                sync.apply_charge(charge, moment=moment)
            continue
        if charge.state not in {ChargeState.SUCCEEDED, ChargeState.PROCESSING}:
            continue
        try:
            row = sync.apply_charge(charge, moment=moment)
        except UnmatchedObjectError as error:
            unplaced[charge.id] = str(error)
            _set_aside(charge, error, gateway, moment)
        else:
            if row is not None:
                adopted += 1
                _placed(charge, moment)
    return adopted, unplaced


def _set_aside(charge: Charge, error: UnmatchedObjectError, gateway: Gateway, moment: datetime) -> None:
    """Nothing is charged to its tenant until somebody has looked; where somebody has, that holds."""
    if charge.refunded < charge.amount and not GatewayEvent.objects.filter(object_id=charge.id).exists():
        webhook_events.hold_for_review(
            f"charge {charge.id}", charge.id, "payment_intent", error, gateway, moment
        )


def _placed(charge: Charge, moment: datetime) -> None:
    """What was in_review because nobody knew where it belongs is dealt with."""
    in_review = GatewayEvent.objects.filter(object_id=charge.id, state=EventState.NEEDS_REVIEW)
    in_review.update(state=EventState.APPLIED, reason="Adopted later.", applied_at=moment)


def _sums(there: There, attempts: Mapping[str, PaymentAttempt]) -> dict[str, dict[str, int]]:
    """By currency, in the gateway's smallest units but for `booked`, which is in ours: payments, and bought credit."""
    sums: dict[str, Counter[str]] = {}

    def add(currency: str, what: str, amount: int) -> None:
        sums.setdefault(currency, Counter())[what] += amount

    for charge in there.charges.values():
        if charge.state is ChargeState.SUCCEEDED:
            add(charge.currency, "charged", charge.amount)
    for refund in there.refunds:
        if refund.state.value in {"pending", "succeeded"}:
            add(refund.currency, "refunded", refund.amount)
    for movement in there.movements.values():
        if movement.charge in attempts or movement.kind in gateway_objects.FEE_KINDS:
            add(movement.currency, "fees", movement.fee if movement.charge else -movement.net)
    for payout in there.payouts:
        if payout.state not in comparison.UNDONE:
            add(payout.currency, "paid_out", payout.amount)
    ours = [row.pk for name, row in attempts.items() if name in there.charges]
    moved = MovedMoney.objects.filter(attempt__in=ours).values_list("payment__amount", "attempt__currency")
    back = MovedCredit.objects.filter(attempt__in=ours).values_list("amount", "attempt__currency")
    bought = [
        (row.amount, row.currency)
        for name, row in attempts.items()
        if name in there.charges and row.top_up_id is not None and row.settled_at is not None
    ]
    for amount, currency in (*moved, *bought, *back):
        add(currency, "booked", amount)
    return {currency: dict(amounts) for currency, amounts in sorted(sums.items())}
