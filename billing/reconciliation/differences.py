"""Stores what a run finds: differences as they come and go, payouts and their lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from billing.models import Difference, GatewayMovement, GatewayPayout, PaymentAttempt
from billing.payments import gateway_access
from billing.reconciliation.comparison import Mismatch
from billing.reconciliation.gateway_objects import There, moment_of

AT_ONCE = 1000


@transaction.atomic
def keep_differences(
    mismatches: Iterable[Mismatch], *, since: datetime, until: datetime, moment: datetime
) -> tuple[int, int]:
    """(how many are new or open again, how many are resolved). What is open and matches now is resolved.

    The same again changes nothing but when each was last seen.
    """
    mismatches = list(mismatches)
    current = Difference.objects.filter(
        Q(resolved_at=None) | Q(object_id__in=[mismatch.object_id for mismatch in mismatches])
    )
    rows = {(row.kind, row.object_id): row for row in current.select_for_update()}
    opened, seen = 0, []
    for mismatch in mismatches:
        row = rows.pop((mismatch.kind, mismatch.object_id), None)
        if row is None:
            opened += 1
            _new(mismatch, moment)
            continue
        if row.resolved_at is not None or _differs(row, mismatch):
            opened += row.resolved_at is not None
            row.resolved_at = None
            row.ours, row.theirs = mismatch.ours, mismatch.theirs
            row.tenant_id, row.invoice_id = mismatch.tenant, mismatch.invoice
            row.save()
        seen.append(row.pk)
    Difference.objects.filter(pk__in=seen).update(last_seen=moment)
    gone = [row.pk for row in rows.values() if row.resolved_at is None and since <= row.about_at <= until]
    Difference.objects.filter(pk__in=gone).update(resolved_at=moment)
    return opened, len(gone)


def _new(mismatch: Mismatch, moment: datetime) -> None:
    Difference.objects.create(
        kind=mismatch.kind,
        object_id=mismatch.object_id,
        about_at=mismatch.about_at,
        tenant_id=mismatch.tenant,
        invoice_id=mismatch.invoice,
        ours=mismatch.ours,
        theirs=mismatch.theirs,
        first_seen=moment,
        last_seen=moment,
    )


def _differs(row: Difference, mismatch: Mismatch) -> bool:
    return (row.ours, row.theirs, row.tenant_id, row.invoice_id) != (
        mismatch.ours,
        mismatch.theirs,
        mismatch.tenant,
        mismatch.invoice,
    )


@transaction.atomic
def keep_money(there: There, attempts: Mapping[str, PaymentAttempt]) -> None:
    """Payouts and movements as they are told now, each with the payment of ours that it is about."""
    GatewayPayout.objects.bulk_create(
        [
            GatewayPayout(
                id=payout.id,
                amount=payout.amount,
                currency=payout.currency,
                state=payout.state,
                created_at=moment_of(payout.created),
                arrives_on=moment_of(payout.arrives).date(),
                itemised=payout.itemised,
            )
            for payout in there.payouts
        ],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=["amount", "currency", "state", "arrives_on", "itemised"],
    )
    payout_of = {name: payout for payout, contents in there.contents.items() for name in contents}
    rows = [_movement(there, name, payout_of.get(name), attempts) for name in there.movements]
    for in_payout in (
        True,
        False,
    ):  # one that is not in a payout that was read may be in one that was read before
        GatewayMovement.objects.bulk_create(
            [row for row in rows if (row.payout_id is not None) is in_payout],
            batch_size=AT_ONCE,
            update_conflicts=True,
            unique_fields=["id"],
            update_fields=["attempt", "amount", "fee", "net", "foreign", *(["payout"] if in_payout else [])],
        )


def _movement(
    there: There, name: str, payout: str | None, attempts: Mapping[str, PaymentAttempt]
) -> GatewayMovement:
    movement = there.movements[name]
    attempt = attempts.get(movement.charge)
    ours = attempt is not None or movement.charge in there.charges or gateway_access.is_ours(movement.tags)
    return GatewayMovement(
        id=movement.id,
        payout_id=payout,
        attempt=attempt,
        kind=movement.kind,
        source=movement.source,
        amount=movement.amount,
        fee=movement.fee,
        net=movement.net,
        currency=movement.currency,
        created_at=moment_of(movement.created),
        foreign=bool(movement.charge) and not ours,
    )
