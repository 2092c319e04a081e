"""A backup is one file of `pg_dump`; restoring it ends with proving that all of it came back.

PostgreSQL's own programs do the work. Their address goes through libpq's variables, so that no password stands in a
list of processes.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from portal.env import ROOT
from portal.instance import postgres_programs
from portal.ops.whole_files import private_file

PROGRAMS = ("pg_dump", "pg_restore")
VARIABLES = (
    "DATABASE_URL",
    "DATABASE_OWNER_URL",
    "CLUSTERTAB_SECRET_KEYS",
    "STRIPE_ACCOUNT_LABEL",
    "SECRET_KEY",
)
"""What a backup and its restoring need of the environment: a restored database without its keys has no secrets."""

LIBPQ = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "options": "PGOPTIONS",
    "connect_timeout": "PGCONNECT_TIMEOUT",
}
ROLES = ROOT / "portal" / "schema" / "roles.sql"


class BackupError(Exception):
    """It cannot be done so; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Proved:
    """What came back. `holds`: every sum closes; `secrets`: how many stored secrets the keys open."""

    holds: bool
    proof: str
    secrets: int


def fingerprint(key: str) -> str:
    """Names a key without telling it: 32 random bytes cannot be guessed from a hash."""
    return sha256(key.encode()).hexdigest()[:8]


def dump(url: str, file: Path) -> int:
    """Write the database into a file that only we can read; its size in bytes. A kill leaves no half file of that name.

    Raises BackupError.
    """
    try:
        with private_file(file) as part:
            # Row level security binds whoever dumps; the role of operators, of which both logins are members, sees all.
            options = ("--enable-row-security", "--format=custom", "--no-owner", f"--file={part}")
            _program("pg_dump", url, *options)
    except OSError as error:
        raise BackupError(f"{file} cannot be written: {error.strerror}.") from error
    return file.stat().st_size


def restore(url: str, file: Path, *, login: str) -> None:
    """Put a backup into an empty database, all of it or nothing, for `login` to work with. `url` is its owner's.

    Raises BackupError, also for a database that is not empty.
    """
    if not file.is_file():
        raise BackupError(f"There is no file {file}.")
    with _connected(url) as connection:
        (tables,) = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() or (0,)
        if tables:
            raise BackupError(
                f"The database {connection.info.dbname} is not empty ({tables} tables), and nothing was changed: "
                "restore into a new one."
            )
        connection.execute("SELECT set_config('app.login', %s, false)", [login])
        connection.execute(ROLES.read_text().encode())  # roles are no part of a dump
    options = ("--no-owner", "--exit-on-error", "--single-transaction")
    _program("pg_restore", url, *options, f"--dbname={_names(url)['dbname']}", str(file))


def prove(url: str) -> Proved:
    """Whether what is in the database adds up, and its secrets can be read, as commands of their own say.

    Raises BackupError where it is of another version of ClusterTab, or no key opens a secret.
    """
    opened = run_command(url, "rotate_secrets", "--dry-run")
    proof = run_command(url, "prove", "--full", codes=(0, 1))
    broken = [check["name"] for check in proof["checks"] if not check["holds"]]
    text = (
        "Every sum closes."
        if proof["holds"]
        else f"A sum does not close: {', '.join(broken) or 'see prove'}."
    )
    return Proved(bool(proof["holds"]), text, int(opened["secrets"]))


@contextmanager
def scratch_database(url: str) -> Iterator[str]:
    """A second, empty database on the server of an owner's `url`, gone afterwards; its name. Raises BackupError.

    What a preview that was killed has left is dropped by the next.
    """
    prefix = f"{_names(url)['dbname']}_preview_"
    name = f"{prefix}{secrets.token_hex(4)}"
    with _connected(url) as connection:  # its lock says that the database is in use
        _drop_left(connection, prefix)
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [name])
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege as error:
            raise BackupError(
                "The login that owns the database may not make a second one: `ALTER ROLE clustertab_owner CREATEDB`, "
                "or restore into one of another server with --into."
            ) from error
        try:
            yield name
        finally:
            with _connected(url) as again:
                _drop(again, name)


def _drop_left(connection: psycopg.Connection[Any], prefix: str) -> None:
    left = "SELECT datname FROM pg_database WHERE starts_with(datname, %s)"
    for (name,) in connection.execute(left, [prefix]).fetchall():
        lock = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
        if connection.execute(lock, [name]).fetchone() == (True,):
            _drop(connection, name)


def _drop(connection: psycopg.Connection[Any], name: str) -> None:
    """Without FORCE: it may not end an autovacuum of the server, which a plain DROP sends away and waits for."""
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = current_user"
    )
    connection.execute(others, [name])
    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def login_of(url: str) -> str:
    """Who signs in by it."""
    return _names(url).get("user", "")


def name_of(url: str) -> str:
    """Which database it names."""
    return _names(url)["dbname"]


def with_name(url: str, name: str) -> str:
    """The address of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{quote(name, safe='')}"))


def _names(url: str) -> dict[str, str]:
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error as error:
        raise BackupError("It must look like postgresql://user:password@host:5432/name.") from error


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[tuple[int]]]:
    _names(url)
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            yield connection
    except psycopg.OperationalError as error:
        raise BackupError(f"The database does not answer: {last_line(str(error))}") from error


def _program(name: str, url: str, *options: str) -> None:
    """One of PostgreSQL's programs, to its end. Raises BackupError with its own last line."""
    environ = os.environ | {LIBPQ[key]: value for key, value in _names(url).items() if key in LIBPQ}
    done = subprocess.run([_path_of(name), *options], env=environ, capture_output=True, text=True)
    if done.returncode:
        raise BackupError(f"{name} failed: {last_line(done.stderr)}")


def _path_of(name: str) -> str:
    """On the PATH, else the embedded PostgreSQL's."""
    if path := shutil.which(name):
        return path
    if programs := postgres_programs():
        return str(programs / name)
    raise BackupError(
        f"{name} is not installed: install PostgreSQL's client of the server's version, such as "
        "postgresql-client-18."
    )


def run_command(url: str, *command: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """What a command of ours answers about that database. Raises BackupError for another exit code."""
    environ = os.environ | {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "portal.settings"}
    words = [sys.executable, str(ROOT / "manage.py"), *command, "--json"]
    done = subprocess.run(words, env=environ, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in codes:
        raise BackupError(last_line(done.stderr))
    payload: dict[str, Any] = json.loads(done.stdout)
    return payload


def last_line(text: str) -> str:
    """What a program says last is its reason."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it gave no reason"
