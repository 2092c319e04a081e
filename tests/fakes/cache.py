"""The cache in this process, for tests that start no Redis."""

from __future__ import annotations

from django.core.cache.backends.locmem import LocMemCache


class Cache(LocMemCache):
    """`portal.core.redis_cache.RedisCache` without Redis."""

    def count(self, key: str, seconds: int) -> int:
        self.add(key, 0, timeout=seconds)
        return self.incr(key)
