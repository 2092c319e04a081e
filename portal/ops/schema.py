"""The schema: tables by Django's migrations, everything else by `portal/schema/*.sql` and what models declare.

Until release 1.0 it has no history: there is one baseline (`portal.dev.baseline`), which a change edits. A database
carries the mark of the baseline that made it, and nothing begins over another one.
"""

from __future__ import annotations

import hashlib
import pkgutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pgtrigger
from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connection, connections, transaction
from django.db.migrations.recorder import MigrationRecorder

from portal import env as environment
from portal.core.audit import tracking
from portal.env import ROOT

APPS = ("audit", "outbox", "clusters", "tenants", "events", "webhooks", "billing", "api")
ROLES = ROOT / "portal" / "schema" / "roles.sql"
OTHER_SQL = tuple(
    ROOT / "portal" / "schema" / f"{name}.sql"
    for name in (
        "held_seconds",
        "resources",
        "days",
        "labels",
        "partitions",
        "months",
        "audit",
        "laws",
        "proof",
        "views",
        "reports",
        "documents",
        "policies",
        "rights",
    )
)
SQL = (ROLES, *OTHER_SQL)
"""In the order in which they need each other."""

AFRESH = (
    "The database was made by another version of ClusterTab, and before release 1.0 none is carried over: start "
    "afresh with an empty database, or, where ClusterTab brings its own, with another CLUSTERTAB_HOME or without "
    "the old one's directory postgres."
)

NOT_TABLES = "what stands beside the tables"

current: list[bool] = []
"""Whether this process has found the schema to be current: it is asked for once, which takes a while."""


class OtherBaselineError(Exception):
    """The database has a schema of another baseline; the message says how to start afresh."""

    def __init__(self) -> None:
        super().__init__(AFRESH)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a database says of its own schema. `complete` once all of it is there."""

    baseline: str
    complete: bool


@cache
def baseline() -> str:
    """A digest of all that makes the schema: migrations, SQL files, and the triggers of models and history."""
    digest = hashlib.sha256()
    for part in _parts():
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def _parts() -> Iterator[bytes]:
    for label in APPS:
        directory = Path(apps.get_app_config(label).path) / "migrations"
        for path in sorted(directory.glob("[0-9]*.py")):
            yield path.read_bytes()
    for path in SQL:
        yield path.read_bytes()
    for model, trigger in sorted(pgtrigger.registered(), key=lambda pair: pair[1].get_pgid(pair[0])):
        yield trigger.compile(model).hash.encode()
    for statement in tracking.statements():
        yield statement.encode()


def read_mark() -> Mark | None:
    """The mark of the database; None where it has none. Raises OtherBaselineError where it has tables without one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass('schema_baseline') IS NULL, to_regclass('django_migrations') IS NULL"
        )
        unmarked, empty = cursor.fetchone()
        if unmarked and not empty:
            raise OtherBaselineError
        if unmarked:
            return None
        cursor.execute("SELECT baseline, complete FROM schema_baseline")
        return Mark(*cursor.fetchone())


def refuse_other() -> Mark | None:
    """The mark of the database, if it has one. Raises OtherBaselineError where it is that of another baseline."""
    mark = read_mark()
    if mark is not None and mark.baseline != baseline():
        raise OtherBaselineError
    return mark


def is_complete() -> bool:
    """Whether all is there that stands beside the tables. Raises OtherBaselineError."""
    mark = refuse_other()
    return mark is not None and mark.complete


def begin() -> bool:
    """Mark an empty database as one of this baseline; whether anything beside migrations is left to make.

    Raises OtherBaselineError. A first start that was killed finds its mark, and goes on.
    """
    mark = refuse_other()
    if mark is None:
        with transaction.atomic(), connection.cursor() as cursor:
            MigrationRecorder(connection).ensure_schema()
            cursor.execute(
                "CREATE TABLE schema_baseline (baseline text PRIMARY KEY, complete boolean NOT NULL)"
            )
            cursor.execute("INSERT INTO schema_baseline VALUES (%s, false)", [baseline()])
            cursor.execute(
                "GRANT SELECT ON schema_baseline, django_migrations TO PUBLIC"
            )  # to see how far it is
        return True
    return not mark.complete


@contextmanager
def as_owner() -> Iterator[None]:
    """Within the block this process is signed in as the owner of the tables, which nothing but `migrate` needs."""
    here = connection.settings_dict
    login = {name: here[name] for name in ("USER", "PASSWORD")}
    owner = {name: environment.database(settings.DATABASE_OWNER_URL, pool=0)[name] for name in login}
    if owner == login:
        yield
        return
    connection.close()
    here.update(owner)
    try:
        yield
    finally:
        connection.close()
        here.update(login)


@transaction.atomic
def admit() -> None:
    """Have the login of DATABASE_URL be what everything runs as; where it is already, nothing changes.

    It may be another one than when the tables were made, as after a restore on another server.
    """
    login = environment.database(settings.DATABASE_URL, pool=0)["USER"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.login', %s, true)", [login])
        cursor.execute(ROLES.read_text())


@transaction.atomic
def complete() -> None:
    """Make what stands beside the tables, all of it or nothing: once, over tables that are all there.

    Asked again, nothing changes.
    """
    with connection.cursor() as cursor:
        cursor.execute("UPDATE schema_baseline SET complete = true WHERE NOT complete")
        if not cursor.rowcount:
            return
        admit()
        for path in OTHER_SQL:
            cursor.execute(path.read_text())
        cursor.execute("\n".join(tracking.statements()))
        cursor.execute(
            "".join(trigger.compile(model).install_sql for model, trigger in pgtrigger.registered())
        )


def pending_migrations() -> list[str]:
    """Names of what has not run, in order. Raises OtherBaselineError, and django.db.Error if nothing answers."""
    mark = refuse_other()
    if mark is not None and mark.complete and _all_applied():
        return []
    from django.db.migrations.executor import MigrationExecutor  # loads all of them

    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    pending = [f"{migration.app_label}.{migration.name}" for migration, _ in plan]
    if mark is None or not mark.complete:
        pending.append(NOT_TABLES)
    return pending


def _all_applied() -> bool:
    """Whether each migration on the disk has run, by its name: a process that only serves loads none of them."""
    applied = MigrationRecorder(connection).applied_migrations()
    return all(
        (config.label, module.name) in applied
        for config in apps.get_app_configs()
        for module in pkgutil.iter_modules([str(Path(config.path) / "migrations")])
        if module.name[0] not in "_~"  # which Django leaves out, too
    )


def refuse_unmigrated(wait: float = 0) -> None:
    """End this process with code 3 and a sentence unless the schema is current: half a schema loses data.

    A database that is away may come back within `wait` seconds. After them the code is 1.
    """
    if current:
        return
    end = time.monotonic() + wait
    while (refusal := _refusal()) is not None and refusal.away and time.monotonic() < end:
        time.sleep(1)
    if refusal is None:
        current.append(True)
        return
    sys.stderr.write(f"{refusal.sentence}\n")
    sys.stderr.flush()
    sys.exit(1 if refusal.away and wait else 3)


@dataclass(frozen=True)
class Refusal:
    """Why nothing begins over this database, and whether that may pass by itself."""

    sentence: str
    away: bool = False


def _refusal() -> Refusal | None:
    try:
        pending = pending_migrations()
    except OtherBaselineError as error:
        return Refusal(str(error))
    except Error as error:
        reason = str(error).strip().splitlines()[0]
        return Refusal(f"The database cannot be reached: {reason}", away=isinstance(error, OperationalError))
    finally:
        connections.close_all()
    if not pending:
        return None
    count = "1 migration has" if len(pending) == 1 else f"{len(pending)} migrations have"
    return Refusal(f"{count} not run ({pending[0]} first): run the command migrate.")
