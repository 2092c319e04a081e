"""When an e-mail reaches a person who has chosen a time for a daily digest, or hours in which they are left alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class NoticeTimes:
    """What a person has chosen, in their zone. Quiet hours are [quiet_from, quiet_until), also over midnight."""

    zone: ZoneInfo
    digest_at: time
    quiet_from: time | None = None
    quiet_until: time | None = None

    def is_quiet(self, local: time) -> bool:
        """Whether that time of day lies in the quiet hours."""
        if self.quiet_from is None or self.quiet_until is None:
            return False
        if self.quiet_from < self.quiet_until:
            return self.quiet_from <= local < self.quiet_until
        return local >= self.quiet_from or local < self.quiet_until

    def next_digest(self, moment: datetime) -> datetime:
        """The first digest after the moment, in UTC. One a day: an hour that a day has twice counts once, and one that
        a day leaves out is the hour after it."""
        today = moment.astimezone(self.zone).date()
        return next(at for days in range(3) if (at := self._at(today + days * DAY, self.digest_at)) > moment)

    def after_quiet(self, moment: datetime) -> datetime:
        """The moment itself, or the end of the quiet hours that it lies in, in UTC."""
        local = moment.astimezone(self.zone)
        if self.quiet_until is None or not self.is_quiet(local.time()):
            return moment
        ends_today = local.time() < self.quiet_until
        end = self._at(local.date() if ends_today else local.date() + DAY, self.quiet_until)
        return max(end, moment)

    def due(self, moment: datetime, *, digest: bool) -> datetime:
        """When what is said at the moment is sent."""
        return self.next_digest(moment) if digest else self.after_quiet(moment)

    def _at(self, day: date, hour: time) -> datetime:
        return datetime.combine(day, hour, self.zone).astimezone(UTC)
