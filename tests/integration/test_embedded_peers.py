"""The embedded servers: private, shared by whoever needs them, and none the worse for a kill -9."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from portal.dev.embedded import host
from portal.dev.embedded.host import EmbeddedError
from portal.dev.embedded.postgres import Postgres
from portal.dev.embedded.redis import Redis
from portal.env import ROOT

PATIENCE = 60  # seconds

# Starts the database, says so, and stays until its standard input ends.
USER_OF_IT = """
import sys
from pathlib import Path
from portal.dev.embedded.postgres import Postgres
with Postgres(Path(sys.argv[1]), volatile=True):
    print("up", flush=True)
    sys.stdin.read()
"""


def user_of(home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER_OF_IT, str(home)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def is_up(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "up\n"


def leave(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=PATIENCE)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_database_lets_in_its_own_application_only(tmp_path: Path) -> None:
    database = Postgres(tmp_path, volatile=True)
    with database, psycopg.connect(database.url()) as connection:
        role = connection.execute(
            "SELECT current_user, rolsuper, rolcreatedb, rolcreaterole, current_setting('listen_addresses')"
            " FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        assert role == ("clustertab", False, False, False, "")
        password = database.password_file.read_text()
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(database.url().replace(password, "guessed"))
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(database.owner_url().replace(database.owner_password_file.read_text(), password))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine ()")
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"host={database.run} user=postgres dbname=postgres")
        assert mode(database.password_file) == mode(database.owner_password_file) == 0o600
        assert (mode(database.base), mode(database.run), mode(database.data)) == (0o700, 0o700, 0o700)
        main = database.main_process()
        assert main is not None
        assert password.encode() not in Path(f"/proc/{main}/cmdline").read_bytes()
    assert database.processes() == []


def test_a_home_with_a_long_name_works(tmp_path: Path) -> None:
    database = Postgres(tmp_path / ("long" * 25), volatile=True)
    assert database.run.parent != database.base
    with database:
        psycopg.connect(database.url()).close()
        assert mode(database.run) == 0o700
    assert not database.run.exists()


def test_a_strangers_directory_in_the_way_of_the_socket_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(Redis, "run", tmp_path / "run")
    with pytest.raises(EmbeddedError, match="is not a directory of ours"), Redis(tmp_path):
        pass


def test_eight_that_start_it_at_once_share_it_and_the_last_one_stops_it(tmp_path: Path) -> None:
    users = [user_of(tmp_path) for _ in range(8)]
    assert all(is_up(user) for user in users)
    database = Postgres(tmp_path)
    first = database.main_process()

    for user in users[:7]:
        leave(user)
    assert database.main_process() == first
    psycopg.connect(database.url()).close()

    leave(users[7])
    assert database.processes() == []


def test_a_user_killed_outright_does_not_keep_it_from_others(tmp_path: Path) -> None:
    killed, other = user_of(tmp_path), user_of(tmp_path)
    assert is_up(killed)
    assert is_up(other)
    killed.kill()
    killed.communicate()

    database = Postgres(tmp_path)
    psycopg.connect(database.url()).close()
    leave(other)
    assert database.processes() == []


def test_what_was_committed_outlives_kill_9_of_the_database(tmp_path: Path) -> None:
    database = Postgres(tmp_path)
    with database:
        with psycopg.connect(database.owner_url()) as connection:
            connection.execute("CREATE TABLE kept (n int)")
            connection.execute("INSERT INTO kept VALUES (1)")
        for pid in database.processes():
            with suppress(ProcessLookupError):  # some end by themselves as soon as the first is gone
                os.kill(pid, signal.SIGKILL)
        database.ensure()
        with psycopg.connect(database.owner_url()) as connection:
            assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]


def test_a_process_id_that_another_program_has_now_is_no_obstacle(tmp_path: Path) -> None:
    database = Postgres(tmp_path, volatile=True)
    with database:
        mark = (database.data / "postmaster.pid").read_text().split("\n", 1)[1]
    (database.data / "postmaster.pid").write_text(f"{os.getpid()}\n{mark}")
    with database:
        psycopg.connect(database.url()).close()


def test_an_interrupted_first_start_is_begun_anew(tmp_path: Path) -> None:
    left = tmp_path / "postgres" / "data.new.4711"
    left.mkdir(parents=True)
    (left / "PG_VERSION").write_text("18")
    database = Postgres(tmp_path, volatile=True)
    with database:
        psycopg.connect(database.url()).close()
    assert not left.exists()


def test_data_of_another_version_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("15\n")
    with (
        pytest.raises(EmbeddedError, match="was made by PostgreSQL 15, and 18 is installed"),
        Postgres(tmp_path),
    ):
        pass


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Postgres, "_program", full)
    with pytest.raises(EmbeddedError, match=r"The disk that holds .* is full"), Postgres(tmp_path):
        pass


@pytest.mark.sample
@pytest.mark.one_attempt
def test_redis_dies_and_comes_back(tmp_path: Path) -> None:
    with Redis(tmp_path) as redis:
        first = redis.main_process()
        assert first is not None
        os.kill(first, signal.SIGKILL)
        end = time.monotonic() + PATIENCE
        while redis.processes() and time.monotonic() < end:
            time.sleep(0.01)
        redis.ensure()
        assert redis.ready()
        assert redis.main_process() != first
    assert redis.processes() == []


def test_without_namespaces_root_hands_the_servers_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_namespaces", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert host.unprivileged() == []
    assert host.nobody_if_needed() == host.NOBODY
