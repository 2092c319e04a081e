"""What a member has chosen of the e-mails that may wait: at once, in a daily digest, or not at all.

What must never wait is no choice: the warning before jobs are ended, failed payments, reminders and suspensions, and
invoices. The tenant's contacts say to whom these go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from django.db import transaction

from billing.models import (
    NoticeDelivery,
    NoticeKind,
    NoticePreference,
    NoticeState,
    NoticeTiming,
)
from billing.notifications.hours import Hours, NotificationError, refuse_digest_in_quiet_hours
from portal.core.tenants.models import Membership

CHOICE_OF: Final[Mapping[str, str]] = {
    NoticeKind.QUOTA: "budgets",
    NoticeKind.RECEIPT: "receipts",
    NoticeKind.REFUND: "receipts",
}
"""The column of a preference by the kind of a notice; no other kind waits for anybody."""
TURNED_OFF = "You have turned such e-mails off."


def timing_of(preference: NoticePreference | None, kind: str) -> NoticeTiming:
    """When its member wants notices of that kind."""
    column = CHOICE_OF.get(kind)
    if preference is None or column is None:
        return NoticeTiming.AT_ONCE
    return NoticeTiming(getattr(preference, column))


@transaction.atomic
def set_preference(
    *, membership: Membership, timings: Mapping[str, str], hours: Hours, moment: datetime
) -> NoticePreference:
    """Keep when the member wants which e-mails; `timings` by column. Again, nothing changes.

    What waits for them is sent or dropped as they want it now. Raises NotificationError.
    """
    Membership.objects.select_for_update(no_key=True).only("pk").get(pk=membership.pk)
    row = NoticePreference.objects.filter(membership=membership).first()
    row = row or NoticePreference(membership=membership, tenant_id=membership.tenant_id)
    for column in set(CHOICE_OF.values()):
        timing = timings.get(column, getattr(row, column))
        if timing not in NoticeTiming.values:
            raise NotificationError("no-timing", text=str(timing)[:20])
        setattr(row, column, timing)
    hours.write_to(row)
    if NoticeTiming.DIGEST in {getattr(row, column) for column in CHOICE_OF.values()}:
        refuse_digest_in_quiet_hours(row)
    row.save()
    _reschedule(row, membership, moment)
    return row


def _reschedule(row: NoticePreference, membership: Membership, moment: datetime) -> None:
    times = row.times(membership.tenant.zone)
    waiting = NoticeDelivery.objects.select_for_update(of=("self",)).filter(
        tenant=membership.tenant_id, user=membership.user_id, state=NoticeState.WAITING, tries=0
    )
    changed = list(waiting.select_related("notice").order_by("pk"))
    for delivery in changed:
        timing = timing_of(row, delivery.notice.kind)
        if timing == NoticeTiming.NEVER:
            delivery.state, delivery.reason = NoticeState.SKIPPED, TURNED_OFF
            continue
        delivery.waits_for = timing
        delivery.not_before = times.due(moment, digest=timing == NoticeTiming.DIGEST)
    NoticeDelivery.objects.bulk_update(changed, ["state", "reason", "waits_for", "not_before"])


def by_address(preferences: Iterable[NoticePreference]) -> dict[str, NoticePreference]:
    """By the address that its person signs in with, in lower case."""
    return {row.membership.user.email.lower(): row for row in preferences}
