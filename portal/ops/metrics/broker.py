"""How many messages wait in the broker's queues."""

from __future__ import annotations

import redis
import structlog
from django.conf import settings

PATIENCE = 2  # seconds

log = structlog.get_logger("portal.metrics")


def depths() -> dict[str, int] | None:
    """Messages by queue that no worker has taken yet; None where the broker does not answer."""
    from portal.celery import app  # not before it is asked for: the pages do without

    names = sorted(app.amqp.queues)
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE
        ) as client:
            pipeline = client.pipeline(transaction=False)
            for name in names:
                pipeline.llen(name)
            return dict(zip(names, map(int, pipeline.execute()), strict=True))
    except (redis.RedisError, OSError) as error:
        log.warning("the broker does not answer", error=str(error))
        return None
