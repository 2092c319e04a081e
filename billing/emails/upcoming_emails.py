"""What waits for one person, as the e-mails that it would be now; and what became of what had waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from billing.emails.composition import Email
from billing.emails.personal_emails import Group, write_draft
from billing.models import NoticeState, NoticeTiming
from billing.models.notice_deliveries import PersonalDelivery
from portal.core.tenants.models import User

RECENT = 10
PREVIEWED = 50
"""Notices; of more, the oldest."""


@dataclass(frozen=True, slots=True)
class UpcomingEmail:
    """One e-mail that waits: the daily digest, or what is held by quiet hours. Without an e-mail, nothing of it holds
    any more, and nothing is sent."""

    due: datetime
    is_digest: bool
    email: Email | None


def list_upcoming(group: Group, user: User, *, moment: datetime) -> list[UpcomingEmail]:
    """By when they are due. Nothing is changed."""
    rows = sorted(group.waiting()[:PREVIEWED], key=lambda row: row.not_before)
    upcoming = []
    for due, same in groupby(rows, key=lambda row: row.not_before):
        listed: list[PersonalDelivery] = sorted(same, key=lambda row: (row.notice_id, row.pk))
        draft = write_draft(group, listed, user, moment, checks=False)
        is_digest = any(row.waits_for == NoticeTiming.DIGEST for row in listed)
        upcoming.append(UpcomingEmail(due, is_digest, draft.email))
    return upcoming


def list_recent(group: Group) -> Sequence[PersonalDelivery]:
    """The newest that were sent, or dropped with a reason; of one e-mail one row. One query."""
    rows = group.rows().exclude(state=NoticeState.WAITING).filter(first=None)
    return list(rows.select_related("notice__tenant").defer("text", "html").order_by("-pk")[:RECENT])
