"""Which notices of tenants an operator is mailed as well: some kinds, of all tenants or of those that are named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from django.db import transaction

from billing.models import (
    OPERATOR_TOPICS,
    NoticeKind,
    NoticeState,
    NoticeTiming,
    OperatorDelivery,
    OperatorSubscription,
)
from billing.notifications.hours import Hours, NotificationError, refuse_digest_in_quiet_hours
from portal.core.tenants.models import Tenant, User

TOPIC_OF: Final[Mapping[str, str]] = {
    NoticeKind.QUOTA_ENDING: "endings",
    NoticeKind.WASTE: "endings",
    NoticeKind.QUOTA: "budgets",
    NoticeKind.REFUSED: "payments",
    NoticeKind.CONFIRM: "payments",
    NoticeKind.TOP_UP: "payments",
    NoticeKind.CARD_GONE: "payments",
    NoticeKind.CARD_EXPIRES: "payments",
    NoticeKind.CARD_EXPIRED: "payments",
    NoticeKind.PAST_DUE: "overdue",
    NoticeKind.REMINDER: "overdue",
    NoticeKind.ANNOUNCE: "overdue",
    NoticeKind.SUSPENDED: "suspensions",
    NoticeKind.RESTORED: "suspensions",
    NoticeKind.INVOICE: "invoices",
    NoticeKind.CREDIT_NOTE: "invoices",
    NoticeKind.RECEIPT: "receipts",
    NoticeKind.REFUND: "receipts",
}
"""By the kind of a notice."""
NEVER_WAITS: Final = frozenset({NoticeKind.QUOTA_ENDING, NoticeKind.WASTE})
"""Sent to operators at once whatever they chose: they can stop it only until then."""
MOST: Final = 100
"""Tenants that a subscription can name."""
UTC = ZoneInfo("UTC")
UNSUBSCRIBED = "You have unsubscribed since."


def matches(row: OperatorSubscription, *, kind: str, slug: str) -> bool:
    """Whether the operator wants notices of that kind of that tenant."""
    return TOPIC_OF.get(kind) in row.topics and (not row.tenants or slug in row.tenants)


def when(row: OperatorSubscription, *, kind: str, moment: datetime) -> tuple[NoticeTiming, datetime]:
    """What a notice waits for, and until when."""
    if kind in NEVER_WAITS:
        return NoticeTiming.AT_ONCE, moment
    timing = NoticeTiming.DIGEST if row.digest else NoticeTiming.AT_ONCE
    return timing, row.times(UTC).due(moment, digest=row.digest)


@transaction.atomic
def set_subscription(
    *,
    user: User,
    topics: Collection[str],
    tenants: Collection[str],
    digest: bool,
    hours: Hours,
    moment: datetime,
) -> OperatorSubscription:
    """Keep what the operator wants; `tenants` are slugs, none means all. No topic: nothing. Again, nothing changes.

    What waits for them is sent or dropped as they want it now. Raises NotificationError.
    """
    User.objects.select_for_update(no_key=True).only("pk").get(pk=user.pk)
    if not user.operator_role:
        raise NotificationError("no-operator", email=user.email)
    if unknown := sorted({*topics} - {*OPERATOR_TOPICS}):
        raise NotificationError("no-topic", topic=unknown[0][:40], topics=", ".join(OPERATOR_TOPICS))
    slugs = list(dict.fromkeys(tenants))
    if len(slugs) > MOST:
        raise NotificationError("too-many-tenants", most=MOST)
    existing = set(Tenant.objects.filter(slug__in=slugs).values_list("slug", flat=True))
    for slug in slugs:
        if slug not in existing:
            raise NotificationError("no-tenant", tenant=slug[:60])
    row = OperatorSubscription.objects.filter(user=user).first() or OperatorSubscription(user=user)
    row.topics = [topic for topic in OPERATOR_TOPICS if topic in topics]
    row.tenants, row.digest = slugs, digest
    hours.write_to(row)
    if digest:
        refuse_digest_in_quiet_hours(row)
    row.save()
    _reschedule(row, moment)
    return row


def _reschedule(row: OperatorSubscription, moment: datetime) -> None:
    waiting = OperatorDelivery.objects.select_for_update(of=("self",)).filter(
        user=row.user_id, state=NoticeState.WAITING, tries=0
    )
    changed = list(waiting.select_related("notice__tenant").order_by("pk"))
    for delivery in changed:
        notice = delivery.notice
        if not matches(row, kind=notice.kind, slug=notice.tenant.slug):
            delivery.state, delivery.reason = NoticeState.SKIPPED, UNSUBSCRIBED
            continue
        delivery.waits_for, due = when(row, kind=notice.kind, moment=moment)
        delivery.not_before = max(due, notice.not_before)
    OperatorDelivery.objects.bulk_update(changed, ["state", "reason", "waits_for", "not_before"])
