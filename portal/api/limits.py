"""How often a key may ask: counted by the minute in Redis; without Redis everything is served."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import structlog
from django.core.cache import cache

from portal.api.problems import ProblemError

WINDOW = 60  # seconds
REQUESTS, WRITES, WRONG_KEYS = 600, 60, 20  # a minute; a write is a request, too

log = structlog.get_logger("portal.api")


@dataclass(frozen=True, slots=True)
class Allotment:
    """What is left of a limit in this minute."""

    name: str
    most: int
    used: int
    resets_in: int  # seconds

    @property
    def left(self) -> int:
        """Below zero once it is exceeded."""
        return self.most - self.used

    @property
    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Policy": f'"{self.name}";q={self.most};w={WINDOW}',
            "RateLimit": f'"{self.name}";r={max(0, self.left)};t={self.resets_in}',
        }

    @property
    def is_exceeded(self) -> bool:
        return self.left < 0


def count(name: str, who: str, *, most: int, moment: datetime) -> Allotment:
    """Count one request of `who`, and say how the limit stands then."""
    from redis.exceptions import RedisError

    minute, second = divmod(int(moment.timestamp()), WINDOW)
    key = f"api:{name}:{who}:{minute}"
    try:
        used = cache.count(key, 2 * WINDOW)  # type: ignore[attr-defined]  # of our own backend
    except (RedisError, OSError):
        log.warning("rate limits are not counted: Redis does not answer")
        used = 0
    return Allotment(name, most, used, WINDOW - second)


def refuse(allotment: Allotment) -> ProblemError:
    detail = f"At most {allotment.most} of these requests a minute. Try again in {allotment.resets_in} s."
    headers = {**allotment.headers, "Retry-After": str(allotment.resets_in)}
    return ProblemError(429, "too-many-requests", "Too many requests", detail, headers=headers)
