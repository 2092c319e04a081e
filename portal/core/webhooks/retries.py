"""When a delivery is tried again, and when a webhook is given up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

DELAYS = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 5 * 60, 30 * 60, *(hours * 3600 for hours in (2, 5, 10, 14, 20, 24)))
)
"""Before the second to the tenth attempt; the first one is at once."""
ATTEMPTS = len(DELAYS) + 1
JITTER = 0.2  # at most so much longer, so that what failed together is not tried together
LONGEST_PAUSE = timedelta(hours=24)  # whatever Retry-After says
GIVEN_UP_AFTER = timedelta(days=5)  # without a success
TOO_MANY_REQUESTS, UNAVAILABLE, GONE = 429, 503, 410


def next_at(*, attempts: int, moment: datetime, random: Callable[[], float]) -> datetime | None:
    """When to try again after so many attempts, the last of them at `moment`; None: no more. `random`: 0 to 1."""
    if attempts >= ATTEMPTS:
        return None
    return moment + DELAYS[attempts - 1] * (1 + JITTER * random())


def pause_until(*, status: int | None, retry_after: str, moment: datetime) -> datetime | None:
    """Until when the endpoint wants no request, by its 429 or 503: seconds, or a date of HTTP."""
    if status not in {TOO_MANY_REQUESTS, UNAVAILABLE} or not retry_after:
        return None
    if retry_after.isascii() and retry_after.isdecimal():
        wish = timedelta(seconds=min(int(retry_after[:9]), LONGEST_PAUSE.total_seconds()))
    else:
        try:
            at = parsedate_to_datetime(retry_after)
        except ValueError:
            return None
        if at.tzinfo is None:
            return None
        wish = min(at - moment, LONGEST_PAUSE)
    return moment + wish if wish > timedelta(0) else None
