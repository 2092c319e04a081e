"""Who gets a notice apart from the e-mail of its tenant: later, as they have chosen, or as an operator.

Each notice is looked at once, before it is sent. What acts, and what is posted to webhooks, waits for none of this: it
comes from the rows of the pass itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from django.db import transaction

from billing.models import (
    Notice,
    NoticeDelivery,
    NoticePreference,
    NoticeState,
    NoticeTiming,
    OperatorDelivery,
    OperatorSubscription,
)
from billing.notifications import preferences, subscriptions
from billing.notifications.preferences import CHOICE_OF, timing_of
from billing.notifications.recipients import list_notice_recipients

BATCH = 500


def distribute(*, moment: datetime) -> int:
    """Write the deliveries of all notices that were not looked at; how many. By two at once, each is looked at once.

    Must not be called inside a transaction. One query where there is nothing new.
    """
    count = 0
    while batch := _distribute_batch(moment):
        count += batch
    return count


@transaction.atomic
def _distribute_batch(moment: datetime) -> int:
    rows = Notice.objects.select_for_update(of=("self",), skip_locked=True)
    rows = rows.filter(state=NoticeState.WAITING, distributed=False).select_related("tenant")
    notices = list(rows.order_by("pk")[:BATCH])
    if notices:
        write_deliveries(notices, moment=moment)
    return len(notices)


def write_deliveries(notices: Sequence[Notice], *, moment: datetime) -> None:
    """Of notices that the caller has locked and that were not looked at. Once for each person, however often."""
    OperatorDelivery.objects.bulk_create(_to_operators(notices, moment), ignore_conflicts=True)
    NoticeDelivery.objects.bulk_create(_to_members(notices, moment), ignore_conflicts=True)
    Notice.objects.filter(pk__in=[notice.pk for notice in notices]).update(distributed=True)
    for notice in notices:
        notice.distributed = True


def _to_operators(notices: Sequence[Notice], moment: datetime) -> Iterator[OperatorDelivery]:
    rows = OperatorSubscription.objects.filter(user__is_active=True).exclude(topics=[])
    subscribed = list(rows.exclude(user__operator_role="").order_by("pk"))
    for notice in notices:
        for row in subscribed:
            if subscriptions.matches(row, kind=notice.kind, slug=notice.tenant.slug):
                timing, due = subscriptions.when(row, kind=notice.kind, moment=moment)
                yield OperatorDelivery(
                    user_id=row.user_id,
                    notice=notice,
                    created_at=moment,
                    waits_for=timing,
                    not_before=max(due, notice.not_before),
                )


def _to_members(notices: Sequence[Notice], moment: datetime) -> Iterator[NoticeDelivery]:
    """For those of its recipients who do not get it with the e-mail of the tenant now."""
    waiting = [notice for notice in notices if notice.kind in CHOICE_OF]
    chosen = load_preferences({notice.tenant_id for notice in waiting})
    for notice in waiting:
        by_address = chosen.get(notice.tenant_id)
        if not by_address:
            continue
        for email in list_notice_recipients(notice):
            row = by_address.get(email.lower())
            timing = timing_of(row, notice.kind)
            if row is None or timing == NoticeTiming.NEVER:
                continue
            due = row.times(notice.tenant.zone).due(moment, digest=timing == NoticeTiming.DIGEST)
            if due > moment:
                yield NoticeDelivery(
                    tenant_id=notice.tenant_id,
                    user_id=row.membership.user_id,
                    notice=notice,
                    created_at=moment,
                    waits_for=timing,
                    not_before=due,
                )


def load_preferences(tenants: set[int]) -> Mapping[int, Mapping[str, NoticePreference]]:
    """By tenant and address. One query."""
    rows = NoticePreference.objects.filter(tenant__in=tenants).select_related("membership__user")
    grouped: dict[int, list[NoticePreference]] = defaultdict(list)
    for row in rows:
        grouped[row.tenant_id].append(row)
    return {tenant: preferences.by_address(listed) for tenant, listed in grouped.items()}


def list_present_recipients(notices: Sequence[Notice]) -> list[str]:
    """Addresses of those who get these notices, of one tenant and one e-mail, with the e-mail of the tenant: all of
    their recipients but who has turned them off, and who gets each of them by a delivery."""
    notice = notices[0]
    everybody = list_notice_recipients(notice)
    if notice.kind not in CHOICE_OF:
        return everybody
    chosen = load_preferences({notice.tenant_id}).get(notice.tenant_id, {})
    if not chosen:
        return everybody
    deliveries = NoticeDelivery.objects.filter(tenant=notice.tenant_id, notice__in=notices)
    counts: dict[int, int] = defaultdict(int)
    for user in deliveries.values_list("user", flat=True):
        counts[user] += 1
    return [
        email
        for email in everybody
        if (row := chosen.get(email.lower())) is None
        or (
            timing_of(row, notice.kind) != NoticeTiming.NEVER
            and counts[row.membership.user_id] < len(notices)
        )
    ]
