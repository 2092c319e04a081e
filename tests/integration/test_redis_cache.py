"""What the site adds to Django's cache in Redis, against a real one."""

from __future__ import annotations

from pathlib import Path

from portal.core.redis_cache import RedisCache
from portal.dev.embedded.redis import Redis


def test_a_counter_begins_at_one_and_is_forgotten_in_time(tmp_path: Path) -> None:
    with Redis(tmp_path) as server:
        cache = RedisCache(server.url(), {})
        assert [cache.count("requests", 60), cache.count("requests", 60), cache.count("others", 60)] == [
            1,
            2,
            1,
        ]
        client = cache._cache.get_client()
        assert 0 < client.ttl(cache.make_key("requests")) <= 60
        client.delete(cache.make_key("requests"))
        assert cache.count("requests", 60) == 1
