"""How requests were answered, summed over all processes in Redis, so that any of them can tell Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    import redis

KEY = "clustertab:requests"
EVERY = 5  # seconds between what a process sends; what it has counted since is lost with it
AFTER_FAILURE = 60  # seconds, in place of that
PATIENCE = 0.2  # seconds
MACHINES = ("/healthz", "/readyz", "/metrics")

Answered = tuple[str, str]
"""`page` or `api`, and a class of status codes such as `5xx`."""


class RequestCounts:
    """Of one process. While Redis is away it counts on."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: Counter[str] = Counter()
        self._next = 0.0

    def add(self, path: str, status: int) -> None:
        if path.startswith((*MACHINES, settings.STATIC_URL)):
            return
        kind = "api" if path.startswith("/api/") else "page"
        with self._lock:
            self._waiting[f"{kind} {status // 100}xx"] += 1
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + EVERY
            batch, self._waiting = self._waiting, Counter()
        from redis import RedisError

        try:
            pipeline = _client().pipeline()
            for name, number in batch.items():
                pipeline.hincrby(KEY, name, number)
            pipeline.execute()
        except (RedisError, OSError):  # of which the metrics of the broker tell
            with self._lock:
                self._waiting += batch
                self._next = time.monotonic() + AFTER_FAILURE


COUNTS = RequestCounts()


def totals() -> dict[Answered, int]:
    """Since Redis is up; none where it does not answer."""
    from redis import RedisError

    try:
        rows: dict[bytes, bytes] = _client().hgetall(KEY)  # type: ignore[assignment]  # this client decodes nothing
    except (RedisError, OSError):
        return {}
    split = {name.decode().partition(" "): int(number) for name, number in rows.items()}
    return {(kind, status): number for (kind, _, status), number in split.items()}


@cache
def _client() -> redis.Redis:
    """Loaded with the first request: commands do without."""
    import redis

    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
