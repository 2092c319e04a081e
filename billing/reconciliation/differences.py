"""Keeping what a run found: differences as they come and go, payouts, and what each payout is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from billing.models import Difference, GatewayMovement, GatewayPayout, PaymentAttempt
from billing.payments import gateway_access
from billing.reconciliation.comparison import Found
from billing.reconciliation.gateway_objects import There, moment_of

AT_ONCE = 1000


@transaction.atomic
def keep_differences(
    found: Iterable[Found], *, since: datetime, until: datetime, moment: datetime
) -> tuple[int, int]:
    """(how many are new or open again, how many are resolved). What is open and was looked at is resolved if not found.

    The same again changes nothing but when each was last seen.
    """
    found = list(found)
    kept = Difference.objects.filter(
        Q(resolved_at=None) | Q(object_id__in=[each.object_id for each in found])
    )
    rows = {(row.kind, row.object_id): row for row in kept.select_for_update()}
    opened, seen = 0, []
    for each in found:
        row = rows.pop((each.kind, each.object_id), None)
        if row is None:
            opened += 1
            _new(each, moment)
            continue
        if row.resolved_at is not None or _differs(row, each):
            opened += row.resolved_at is not None
            row.resolved_at = None
            row.ours, row.theirs = each.ours, each.theirs
            row.tenant_id, row.invoice_id = each.tenant, each.invoice
            row.save()
        seen.append(row.pk)
    Difference.objects.filter(pk__in=seen).update(last_seen=moment)
    gone = [row.pk for row in rows.values() if row.resolved_at is None and since <= row.about_at <= until]
    Difference.objects.filter(pk__in=gone).update(resolved_at=moment)
    return opened, len(gone)


def _new(found: Found, moment: datetime) -> None:
    Difference.objects.create(
        kind=found.kind,
        object_id=found.object_id,
        about_at=found.about_at,
        tenant_id=found.tenant,
        invoice_id=found.invoice,
        ours=found.ours,
        theirs=found.theirs,
        first_seen=moment,
        last_seen=moment,
    )


def _differs(row: Difference, found: Found) -> bool:
    return (row.ours, row.theirs, row.tenant_id, row.invoice_id) != (
        found.ours,
        found.theirs,
        found.tenant,
        found.invoice,
    )


@transaction.atomic
def keep_money(there: There, attempts: Mapping[str, PaymentAttempt]) -> None:
    """Payouts and movements as they are told now, each with the payment of ours that it is about."""
    GatewayPayout.objects.bulk_create(
        [
            GatewayPayout(
                id=each.id,
                amount=each.amount,
                currency=each.currency,
                state=each.state,
                made_at=moment_of(each.created),
                arrives_on=moment_of(each.arrives).date(),
                itemised=each.itemised,
            )
            for each in there.payouts
        ],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=["amount", "currency", "state", "arrives_on", "itemised"],
    )
    payout_of = {name: payout for payout, contents in there.contents.items() for name in contents}
    rows = [_movement(there, name, payout_of.get(name), attempts) for name in there.movements]
    for told in (True, False):  # one that is not in a payout that was read may be in one that was read before
        GatewayMovement.objects.bulk_create(
            [row for row in rows if (row.payout_id is not None) is told],
            batch_size=AT_ONCE,
            update_conflicts=True,
            unique_fields=["id"],
            update_fields=["attempt", "amount", "fee", "net", "foreign", *(["payout"] if told else [])],
        )


def _movement(
    there: There, name: str, payout: str | None, attempts: Mapping[str, PaymentAttempt]
) -> GatewayMovement:
    told = there.movements[name]
    attempt = attempts.get(told.charge)
    ours = attempt is not None or told.charge in there.charges or gateway_access.is_ours(told.tags)
    return GatewayMovement(
        id=told.id,
        payout_id=payout,
        attempt=attempt,
        kind=told.kind,
        source=told.source,
        amount=told.amount,
        fee=told.fee,
        net=told.net,
        currency=told.currency,
        made_at=moment_of(told.created),
        foreign=bool(told.charge) and not ours,
    )
