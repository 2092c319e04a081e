"""Redis is killed and comes back empty: workers wait, nothing is lost, and all of it is done once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis as redis_client
from django.db import transaction
from django.db.models.functions import Now

from portal.celery import app
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.dev.embedded.redis import Redis
from tests.integration.test_outbox_worker import environ_of, eventually, worker

MANY = 40
A_MOMENT, AN_HOUR = 5, 3_700  # seconds
"""In the longer what had been sent before, and was lost with Redis, is due again by itself."""


def leave(first: int, end: int) -> None:
    with transaction.atomic():
        outbox.add_many("tests.integration.effects.record", [{"mark": f"{n:03}"} for n in range(first, end)])


@pytest.mark.parametrize(
    "away",
    [A_MOMENT, pytest.param(AN_HOUR, marks=pytest.mark.long)],
)
def test_what_is_left_to_do_while_redis_is_away_is_done_once_when_it_is_back(
    transactional_db: None, database_url: str, effects: Callable[[], list[str]], tmp_path: Path, away: int
) -> None:
    log = tmp_path / "worker.log"
    with Redis(tmp_path) as redis, worker(environ_of(tmp_path, database_url, redis), log) as process:
        leave(0, 1)
        eventually(lambda: len(effects()) == 1, log)
        redis._sweep()  # which has nothing on its disk
        leave(1, MANY)
        time.sleep(away)  # the scheduler goes on, and its rounds come to nothing
        assert (len(effects()), process.poll()) == (1, None), log.read_text()
        if away < AN_HOUR:
            OutboxMessage.objects.undone().update(available_at=Now())
        redis.ensure()
        eventually(lambda: not OutboxMessage.objects.undone().exists(), log)
        assert process.poll() is None
        with redis_client.Redis.from_url(redis.url()) as client:
            eventually(lambda: client.llen("wake") == 0, log)
    assert sorted(effects()) == [f"{n:03}" for n in range(MANY)]


def test_workers_wait_for_redis_however_long() -> None:
    """With Celery's own limit they would end after three quarters of an hour."""
    assert app.conf.broker_connection_max_retries is None
