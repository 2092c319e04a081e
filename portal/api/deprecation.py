"""What of the API is to go: announced in each answer of its address (RFC 9745, RFC 8594) for a year at least."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.utils.http import http_date

NOTICE = timedelta(days=365)
RULE = "/reference/api/"  # its first page says what becomes of what is deprecated


@dataclass(frozen=True, slots=True)
class Deprecation:
    """Of a whole address, or of some `fields` of its answers, which its serializer marks as deprecated, too.

    Raises ValueError where programs would have less than a year.
    """

    since: date  # the day of UTC that announces it
    sunset: date  # from this day on it can be gone
    fields: tuple[str, ...] = ()  # none: the whole address

    def __post_init__(self) -> None:
        if self.sunset - self.since < NOTICE:
            raise ValueError("What is deprecated is answered as before for at least 365 days.")

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Deprecation": f"@{_second(self.since)}",
            "Sunset": http_date(_second(self.sunset)),
            "Link": f'<{RULE}>; rel="deprecation"; type="text/html"',
        }


def _second(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp())
