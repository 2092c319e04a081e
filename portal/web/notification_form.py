"""What the forms about e-mails share, of members and of operators: hours, the next e-mail, and the last ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from django.http import HttpRequest
from django.utils.translation import gettext as _

from billing.emails import upcoming_emails
from billing.emails.personal_emails import Group
from billing.emails.upcoming_emails import UpcomingEmail
from billing.models import NoticeState
from billing.models.notice_deliveries import NoticeSchedule, PersonalDelivery
from billing.notifications.hours import Hours, read_hours
from portal.core.tenants.models import User
from portal.web.badges import Badge

HOURS = ("digest_at", "quiet_from", "quiet_until", "timezone")
"""The fields of the form that say when."""


@dataclass(frozen=True, kw_only=True)
class RecentEmail:
    """One that was sent later than at once, or dropped."""

    at: datetime
    subject: str
    badge: Badge
    reason: str


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What goes to the person next, and what went last."""

    upcoming: Sequence[UpcomingEmail]
    recent: Sequence[RecentEmail]
    next_digest: datetime
    zone: tzinfo


def hours_of(row: NoticeSchedule | None, typed: Mapping[str, str]) -> dict[str, str]:
    """By field, as it was typed last or as it is."""
    hours = Hours() if row is None else row
    values = {
        "digest_at": f"{hours.digest_at:%H:%M}",
        "quiet_from": f"{hours.quiet_from:%H:%M}" if hours.quiet_from is not None else "",
        "quiet_until": f"{hours.quiet_until:%H:%M}" if hours.quiet_until is not None else "",
        "timezone": hours.timezone,
    }
    return {name: typed.get(name, value) for name, value in values.items()}


def read_form(request: HttpRequest) -> Hours:
    """Raises NotificationError."""
    texts = {name: request.POST.get(name, "").replace("\0", "")[:100] for name in HOURS}
    return read_hours(**texts)


def waiting_for(
    group: Group, user: User, *, next_digest: datetime, zone: tzinfo, moment: datetime
) -> Waiting:
    """What is shown of the person's e-mails."""
    return Waiting(
        upcoming=upcoming_emails.list_upcoming(group, user, moment=moment),
        recent=[_recent(row) for row in upcoming_emails.list_recent(group)],
        next_digest=next_digest,
        zone=zone,
    )


def _recent(row: PersonalDelivery) -> RecentEmail:
    badges = {
        NoticeState.SENT: Badge(label=_("Sent"), tone="ok"),
        NoticeState.DRAFTED: Badge(label=_("Drafted: no mail server"), tone="muted"),
        NoticeState.SKIPPED: Badge(label=_("Not sent"), tone="muted"),
        NoticeState.FAILED: Badge(label=_("Failed"), tone="late"),
        NoticeState.SENDING: Badge(label=_("Not confirmed"), tone="wait"),
    }
    return RecentEmail(
        at=row.sent_at or row.created_at,
        subject=row.subject or f"{row.notice.get_kind_display()}, {row.notice.tenant.name}",
        badge=badges[NoticeState(row.state)],
        reason=row.reason,
    )
