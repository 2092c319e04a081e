"""The bench's own PostgreSQL: as durable as the demo's, on a real disk, thrown away afterwards.

Works run in databases copied from a prepared one, so that each run begins with the same rows and
the same (absent) statistics.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import psycopg
from psycopg import sql

from portal.dev.embedded.postgres import Postgres
from portal.env import ROOT
from portal.instance import DATABASE

HOME = ROOT / "var" / "bench"


class BusyError(Exception):
    """Another bench runs here."""


@contextmanager
def started() -> Iterator[Postgres]:
    """A server with an empty home, and Django set up for it."""
    HOME.parent.mkdir(exist_ok=True)
    with (HOME.parent / "bench.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError("A bench is running here already; two would measure each other.") from None
        server = Postgres(HOME)
        if HOME.exists():
            server.stop()  # an earlier one that was killed
            shutil.rmtree(HOME)
        try:
            with server:
                _set_up(server)
                yield server
        finally:
            shutil.rmtree(HOME, ignore_errors=True)


def _set_up(server: Postgres) -> None:
    os.environ |= {
        "CLUSTERTAB_HOME": str(HOME),
        "DATABASE_URL": server.owner_url(),  # its works make tables and databases of their own beside
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "SECRET_KEY": "of no consequence here",
        "CLUSTERTAB_SECRET_KEYS": "b2Ygbm8gY29uc2VxdWVuY2UgaW4gYW55IGJlbmNoICE=",
        "LOG_LEVEL": "WARNING",
    }
    (HOME / "static").mkdir(exist_ok=True)  # the site expects it, empty or not
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def copy(template: str, name: str) -> None:
    """Make the database `name` anew, as a copy of `template`, and let Django use it."""
    _leave()
    with _maintenance() as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
    use(name)


def create(name: str) -> None:
    """Make the database `name`, empty."""
    with _maintenance() as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def drop(*names: str) -> None:
    _leave()
    with _maintenance() as connection:
        for name in names:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def use(name: str) -> None:
    """Let Django use that database from now on."""
    from django.db import connection

    _leave()
    connection.settings_dict["NAME"] = name
    connection.ensure_connection()


def _leave() -> None:
    from django.db import connection

    connection.close()


def _maintenance() -> psycopg.Connection[tuple[object, ...]]:
    parts = urlsplit(os.environ["DATABASE_URL"])
    return psycopg.connect(
        host=parse_qs(parts.query)["host"][0],
        user=parts.username,
        password=parts.password,
        dbname="postgres",
        autocommit=True,
    )


EMPTY = DATABASE
"""The database that has the schema and nothing else."""
