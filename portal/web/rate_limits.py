"""How often somebody who is not signed in may do something, counted by address in Redis."""

from __future__ import annotations

import structlog
from allauth.core.internal import ratelimit
from django.http import HttpRequest

log = structlog.get_logger("portal.web")


def within_rate(request: HttpRequest, name: str, rate: str) -> bool:
    """Whether this request is within the rate, such as `60/m/ip`; it counts. Without Redis every request is.

    Of IPv6 the network counts, behind proxies of ours the address that they say.
    """
    from redis.exceptions import RedisError

    try:
        counted = ratelimit.consume(request, app="portal", action=name, config={name: rate}, limit_get=True)
    except (RedisError, OSError):
        log.warning("rate limits are not counted: Redis does not answer")
        return True
    return counted is not None
