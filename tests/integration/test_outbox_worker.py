"""A worker killed in the middle of an effect: real process, real Redis, real scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import transaction
from django.db.models.functions import Now

from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.dev.embedded.redis import Redis
from portal.env import ROOT

PATIENCE = 60  # seconds


def environ_of(home: Path, database_url: str, redis: Redis) -> dict[str, str]:
    """A worker's, over the database of the tests and a Redis of its own."""
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "CLUSTERTAB_HOME": str(home),
        "DATABASE_URL": database_url,
        "REDIS_URL": redis.url(),
    }


@contextmanager
def worker(environ: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker with its scheduler inside; whatever is left of it is killed."""
    command = [sys.executable, "-m", "portal.celery_command", "worker", "--beat"]
    options = ["--concurrency", "1", "--without-gossip", "--without-mingle", "--loglevel", "INFO"]
    with started([*command, *options], environ, log) as process:
        yield process


@contextmanager
def started(command: list[str], environ: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own session; whatever is left of it is killed."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environ, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def eventually(so: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def test_a_worker_killed_in_mid_effect_leaves_nothing_half_done(
    transactional_db: None, database_url: str, effects: Callable[[], list[str]], tmp_path: Path
) -> None:
    entered, released, log = tmp_path / "entered", tmp_path / "released", tmp_path / "worker.log"
    with transaction.atomic():
        outbox.add(
            "tests.integration.effects.record_and_wait",
            mark="mail",
            entered=str(entered),
            released=str(released),
        )

    with Redis(tmp_path) as redis:
        environ = environ_of(tmp_path, database_url, redis)
        with worker(environ, log) as first:
            eventually(entered.exists, log)
            kill(first)
        assert effects() == []
        assert OutboxMessage.objects.undone().count() == 1

        released.touch()
        OutboxMessage.objects.update(available_at=Now())  # half a minute later
        with worker(environ, log):
            eventually(lambda: not OutboxMessage.objects.undone().exists(), log)
    assert effects() == ["mail"]


@pytest.mark.django_db
def test_a_worker_refuses_a_database_without_the_tables_it_needs(tmp_path: Path) -> None:
    environ = os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "DATABASE_URL": os.environ["DATABASE_URL"],  # not the test database: nothing was ever migrated there
        "REDIS_URL": f"unix://{tmp_path}/none.sock",
    }
    command = [sys.executable, "-m", "portal.celery_command", "worker"]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 3
    assert "migrations have not run" in done.stderr
    assert "Traceback" not in done.stderr


LOOKS = """
import django
django.setup()
from django.db import connection
from billing.sealed_months.start import look_at_files
look_at_files()
print(connection.connection)
"""


@pytest.mark.parametrize("is_away", [False, True])
def test_what_looks_at_the_files_of_dropped_months_before_it_forks_has_no_connection_then(
    transactional_db: None, database_url: str, tmp_path: Path, is_away: bool
) -> None:
    url = f"postgresql://nobody@/none?host={tmp_path}" if is_away else database_url
    environ = os.environ | {"DJANGO_SETTINGS_MODULE": "portal.settings", "DATABASE_URL": url}
    done = subprocess.run(
        [sys.executable, "-c", LOOKS], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["None"]), done.stderr
    assert ("dropped months not looked at" in done.stdout + done.stderr) is is_away
