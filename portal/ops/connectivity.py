"""Whether the database and the Redis that an operator named answer, before anything waits for them."""

from __future__ import annotations

import psycopg
import redis

from portal import env

SECONDS = 5


class UnreachableError(Exception):
    """A peer does not answer; the message is one sentence."""


def database(url: str) -> None:
    """Raises UnreachableError within seconds, or SettingError for what is no address."""
    env.database(url, pool=0)
    try:
        psycopg.connect(url, connect_timeout=SECONDS).close()
    except psycopg.Error as error:
        raise UnreachableError(f"The database cannot be reached: {_reason(error)}") from error


def broker(url: str) -> None:
    """Raises UnreachableError within seconds, or SettingError for what is no address."""
    try:
        client = redis.Redis.from_url(env.redis(url), socket_connect_timeout=SECONDS, socket_timeout=SECONDS)
        client.ping()
        client.close()
    except (redis.RedisError, ValueError) as error:
        raise UnreachableError(f"Redis cannot be reached: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0]
