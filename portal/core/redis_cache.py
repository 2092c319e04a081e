"""Django's cache in Redis with one client a thread: Django makes one a command, which takes longer than the command."""

from __future__ import annotations

from typing import Any

from django.core.cache.backends import redis


class KeptClient(redis.RedisCacheClient):
    """Its clients stay. Each is safe to be used by several threads, as redis-py promises."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._kept: dict[Any, Any] = {}

    def get_client(self, key: Any = None, *, write: bool = False) -> Any:
        """The client of a server, of which there are several where the first alone takes writes."""
        pool = self._get_connection_pool(write)  # type: ignore[attr-defined]  # django-stubs lacks it
        if pool not in self._kept:
            self._kept[pool] = super().get_client(key, write=write)
        return self._kept[pool]

    def count(self, key: str, seconds: int) -> int:
        pipeline = self.get_client(key, write=True).pipeline()
        number, _ = pipeline.incr(key).expire(key, seconds).execute()
        return int(number)


class RedisCache(redis.RedisCache):
    """`BACKEND` of the settings."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._class = KeptClient

    def count(self, key: str, seconds: int) -> int:
        """One more than before, from 1 on; forgotten `seconds` after the last. One round trip: `incr` takes two."""
        client: KeptClient = self._cache  # type: ignore[assignment]  # of `_class`
        return client.count(self.make_and_validate_key(key), seconds)
