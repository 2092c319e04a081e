"""The hours that a person has chosen, read from text as forms and commands have it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import time
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError

from billing.models.notice_deliveries import NoticeSchedule
from billing.notifications.messages import SENTENCES
from portal.core.tenants.models import validate_zone
from portal.errors import CodedError
from portal.excerpt import quoted


class NotificationError(CodedError):
    """Something about e-mails cannot be chosen so; the message says why and what to do."""

    sentences = SENTENCES


UTC = ZoneInfo("UTC")
DIGEST_AT = time(8)
"""Of whoever says nothing."""


@dataclass(frozen=True, slots=True)
class Hours:
    """Local times; `timezone` "" is the tenant's, of an operator UTC."""

    digest_at: time = DIGEST_AT
    quiet_from: time | None = None
    quiet_until: time | None = None
    timezone: str = ""

    def write_to(self, row: NoticeSchedule) -> None:
        """Its columns; nothing is saved."""
        row.digest_at, row.timezone = self.digest_at, self.timezone
        row.quiet_from, row.quiet_until = self.quiet_from, self.quiet_until


def read_hours(*, digest_at: str, quiet_from: str, quiet_until: str, timezone: str) -> Hours:
    """Raises NotificationError for what is no time or zone, and for quiet hours with one end."""
    zone = timezone.strip()
    if zone:
        try:
            validate_zone(zone)
        except ValidationError as error:
            raise NotificationError("no-zone", text=quoted(zone)) from error
    since, until = _read_time(quiet_from), _read_time(quiet_until)
    if (since is None) != (until is None):
        raise NotificationError("quiet-hours-half")
    if since is not None and since == until:
        raise NotificationError("quiet-hours-same", since=f"{since:%H:%M}")
    return Hours(_read_time(digest_at) or DIGEST_AT, since, until, zone)


def refuse_digest_in_quiet_hours(row: NoticeSchedule) -> None:
    """Raises NotificationError where the digest would come while its reader is to be left alone."""
    since, until = row.quiet_from, row.quiet_until
    if since is not None and until is not None and row.times(UTC).is_quiet(row.digest_at):
        raise NotificationError(
            "digest-in-quiet-hours",
            digest=f"{row.digest_at:%H:%M}",
            since=f"{since:%H:%M}",
            until=f"{until:%H:%M}",
        )


def _read_time(text: str) -> time | None:
    """None of an empty text. To the minute; browsers may send seconds, too."""
    text = text.strip()
    if not text:
        return None
    match = re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(:[0-5][0-9])?", text, re.ASCII)
    if match is None:
        raise NotificationError("no-time", text=quoted(text[:40]))
    return time(int(match[1]), int(match[2]))
