"""Which reasons to write become one e-mail, and when: a tenant has one a day about what it owes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from billing.models import Notice, NoticeKind, NoticeState
from billing.rules.dunning_defaults import morning
from portal.core.tenants.models import Tenant

DAILY = (
    NoticeKind.ANNOUNCE,
    NoticeKind.CONFIRM,
    NoticeKind.REFUSED,
    NoticeKind.TOP_UP,
    NoticeKind.PAST_DUE,
    NoticeKind.REMINDER,
    NoticeKind.CARD_GONE,
    NoticeKind.CARD_EXPIRED,
    NoticeKind.CARD_EXPIRES,
)
"""What waits of these goes out as one e-mail, and as the only one of its day. In the order in which it says them."""
SAYS_IT_TOO = (NoticeKind.REMINDER, NoticeKind.PAST_DUE)
"""Left out where the same e-mail says more of the same invoice."""
ALONE = "alone"
"""Of a notice that could not be written: so that it stops no other."""
OUT = (NoticeState.SENDING, NoticeState.SENT, NoticeState.DRAFTED)


def list_email_notices(notice: Notice, moment: datetime) -> QuerySet[Notice]:
    """All that waits and is one e-mail with the notice, itself included.

    What only waits for the morning goes along; what the mail server refused keeps its distance, and what could not be
    written is tried alone.
    """
    rows = Notice.objects.filter(state=NoticeState.WAITING, tenant=notice.tenant_id)
    if ALONE in notice.details:
        return rows.filter(pk=notice.pk)
    rows = rows.exclude(details__has_key=ALONE)
    if notice.kind in DAILY:
        return rows.filter(Q(tries=0) | Q(not_before__lte=moment), kind__in=DAILY)
    if notice.kind == NoticeKind.RECEIPT:
        return rows.filter(kind=NoticeKind.RECEIPT, not_before__lte=moment)
    return rows.filter(pk=notice.pk)


def sort_notices(notices: Iterable[Notice]) -> list[Notice]:
    """As the e-mail says them: the gravest first, then the longest due."""

    def rank(notice: Notice) -> tuple[int, str, int]:
        due = str(notice.invoice.due_on) if notice.invoice else ""
        return DAILY.index(NoticeKind(notice.kind)) if notice.kind in DAILY else 0, due, notice.pk

    return sorted(notices, key=rank)


def list_superfluous(notices: Sequence[Notice]) -> list[Notice]:
    """Reminders of invoices of which the same e-mail says more."""
    more = {notice.invoice_id for notice in notices if notice.kind not in SAYS_IT_TOO}
    first: dict[int | None, Notice] = {}
    reminders = []
    for notice in sort_notices(notices):
        if notice.kind not in SAYS_IT_TOO:
            continue
        if notice.invoice_id in more or notice.invoice_id in first:
            reminders.append(notice)
        first.setdefault(notice.invoice_id, notice)
    return reminders


def next_send_time(notices: Sequence[Notice], tenant: Tenant, moment: datetime) -> datetime | None:
    """When these may be sent, where their tenant had its e-mail of today already; None: now.

    What an operator has sent again goes at once.
    """
    if not all(notice.kind in DAILY for notice in notices) or any(
        notice.details.get("at_once") for notice in notices
    ):
        return None
    local = moment.astimezone(tenant.zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    sent = Notice.objects.filter(tenant=tenant, kind__in=DAILY, state__in=OUT, sent_at__gte=midnight)
    return morning(local.date() + timedelta(days=1), tenant.zone) if sent.exists() else None
