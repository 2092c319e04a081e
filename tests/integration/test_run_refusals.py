"""What `./run` says where it was told something that cannot work: one sentence, code 2, within seconds."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from portal.dev.embedded.host import is_full
from portal.dev.embedded.redis import Redis
from portal.env import ROOT
from portal.ops.processes import Child, stop
from tests.integration.test_run_manage import environ
from tests.ports import a_free_port

PATIENCE = 300  # seconds
LOCKS = ("requirements.txt", "requirements-demo.txt", "requirements-dev.txt", "requirements-uv.txt")


def refused(home: Path, *command: str, **variables: str) -> str:
    """The sentence on standard error; the code is 2, and standard output is empty."""
    done = subprocess.run(
        [ROOT / "run", *command],
        env=environ(home) | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip()


@pytest.mark.parametrize("command", ["demo", "manage"])
def test_a_database_that_is_not_there_is_named(command: str, tmp_path: Path) -> None:
    nowhere = f"postgresql://tab:hush@127.0.0.1:{a_free_port()}/billing"
    words = ["demo", "--port", str(a_free_port())] if command == "demo" else ["manage", "show_invoices"]
    sentence = refused(tmp_path, *words, DATABASE_URL=nowhere)
    assert sentence.startswith("The database cannot be reached: ")
    assert "hush" not in sentence


def test_a_redis_that_is_not_there_is_named(tmp_path: Path) -> None:
    nowhere = f"redis://127.0.0.1:{a_free_port()}/0"
    sentence = refused(tmp_path, "demo", "--port", str(a_free_port()), REDIS_URL=nowhere)
    assert sentence.startswith("Redis cannot be reached: ")


def test_a_redis_that_accepts_and_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        sentence = refused(tmp_path, "demo", "--port", str(a_free_port()), REDIS_URL=address)
    assert sentence.startswith("Redis cannot be reached: ")


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    sentence = "REDIS_URL must look like redis://host:6379/0, rediss://host:6379/0 or unix:///path?db=0."
    assert refused(tmp_path, "manage", "check", REDIS_URL="amqp://queue/0") == sentence
    assert refused(tmp_path, "demo", "--port", str(a_free_port()), REDIS_URL="127.0.0.1:6379") == sentence
    assert refused(tmp_path, "manage", "check", DATABASE_URL="postgresql://tab@db:often/tab") == (
        "The port in DATABASE_URL is none."
    )


def test_a_port_that_is_no_number_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "demo", "--port", "abc") == "abc is no port; choose one between 1 and 65535."


def test_a_check_that_there_is_not_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "check", "typo") == (
        "There is no check 'typo'; there are lint, format, types, layers, django, schema, shape, templates."
    )
    assert refused(tmp_path, "check", "lint", "--fix").startswith("There is no check '--fix'; ")


@pytest.mark.parametrize(
    "output",
    [
        'PANIC:  could not write to file "pg_wal/xlogtemp.9": No space left on device',
        'ERROR:  could not extend file "base/16385/2619": wrote only 4096 of 8192 bytes at block 7',
    ],
)
def test_a_full_disk_is_known_by_what_the_database_says(output: str, tmp_path: Path) -> None:
    assert is_full(tmp_path, output)
    assert not is_full(tmp_path, 'FATAL:  role "tab" does not exist')


def test_logs_are_for_their_owner_alone(tmp_path: Path) -> None:
    child = Child("web", ["true"], {}, tmp_path / "web.log")
    child.start()
    stop([child])
    assert child.log.stat().st_mode & 0o777 == 0o600
    with Redis(tmp_path) as redis:
        assert redis.log.stat().st_mode & 0o777 == 0o600


def test_a_home_with_quotes_in_its_name_is_as_good_as_any(tmp_path: Path) -> None:
    home = tmp_path / """the "lab's" \\ home"""
    with Redis(home) as redis:
        assert redis.ready()


def test_a_linked_environment_is_not_emptied_where_it_is(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    (theirs / "bin").mkdir(parents=True)
    ours.mkdir()
    for name in ("run", *LOCKS):
        shutil.copy(ROOT / name, ours)
    (ours / ".venv").symlink_to(theirs)
    done = subprocess.run(
        [ours / "run", "manage", "prove"], env=environ(tmp_path), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == ".venv is a link to another place: remove the link, and it is made here."
    assert (theirs / "bin").exists()
