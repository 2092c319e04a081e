"""The schema: tables by Django's migrations, everything else by `portal/schema/*.sql` and what models declare.

An empty database gets all of it. One of an earlier level (`portal.schema.levels`) gets the migrations that are new to
it, each with what it changes beside the tables. A database carries the mark of its level, and nothing begins over one
that these programs do not fit.
"""

from __future__ import annotations

import hashlib
import pkgutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
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
from portal.schema.levels import CURRENT

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
        "dropped_months",
    )
)
SQL = (ROLES, *OTHER_SQL)
"""In the order in which they need each other."""

BEFORE_1 = (
    "The database was made by a version of ClusterTab before 1.0, and none of these is carried over: start "
    "afresh with an empty database, or, where ClusterTab brings its own, with another CLUSTERTAB_HOME or without "
    "the old one's directory postgres."
)
CHANGED = (
    "The database was made by another state of the same release, which was changed since: install what made it, or "
    "start afresh with an empty database."
)
NEWER = (
    "The database was upgraded by a newer release of ClusterTab, over which these programs do not run any more: "
    "install that release, or restore a backup from before the upgrade (docs/how-to/upgrade.md)."
)

NOT_TABLES = "what stands beside the tables"

current: list[bool] = []
"""Whether this process has found the schema to be current: it is asked for once, which takes a while."""


class OtherSchemaError(Exception):
    """The database has a schema that these programs do not fit; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a database says of its own schema. `complete` once all of it is there."""

    level: int
    programs_from: int
    digest: str
    complete: bool

    @property
    def is_current(self) -> bool:
        """Whether all is there that these programs need, or more."""
        return self.complete and self.level >= CURRENT.number


@cache
def digest() -> str:
    """Of all that makes the schema: migrations, SQL files, and the triggers of models and history."""
    whole = hashlib.sha256()
    for part in _parts():
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:16]


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
    """The mark of the database; None where it has none. Raises OtherSchemaError where it has tables without one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('schema_level') IS NULL, to_regclass('django_migrations') IS NULL")
        unmarked, empty = cursor.fetchone()
        if unmarked and not empty:
            raise OtherSchemaError(BEFORE_1)
        if unmarked:
            return None
        cursor.execute("SELECT level, programs_from, digest, complete FROM schema_level")
        return Mark(*cursor.fetchone())


def refuse_other() -> Mark | None:
    """The mark of the database, if it has one. Raises OtherSchemaError where these programs do not fit it."""
    mark = read_mark()
    if mark is None:
        return None
    if mark.level > CURRENT.number and (mark.programs_from > CURRENT.number or not mark.complete):
        raise OtherSchemaError(NEWER)
    if mark.level == CURRENT.number and mark.digest != digest():
        raise OtherSchemaError(CHANGED)
    return mark


def is_complete() -> bool:
    """Whether all is there that these programs need. Raises OtherSchemaError."""
    mark = refuse_other()
    return mark is not None and mark.is_current


def begin() -> Mark:
    """The mark of the database: an empty one gets that of this level, as one that is not complete.

    Raises OtherSchemaError. A first start that was killed finds its mark, and goes on.
    """
    mark = refuse_other()
    if mark is None:
        mark = Mark(CURRENT.number, CURRENT.programs_from, digest(), complete=False)
        with transaction.atomic(), connection.cursor() as cursor:
            MigrationRecorder(connection).ensure_schema()
            cursor.execute(
                "CREATE TABLE schema_level (level int PRIMARY KEY, programs_from int NOT NULL,"
                " digest text NOT NULL, complete boolean NOT NULL)"
            )
            cursor.execute("INSERT INTO schema_level VALUES (%s, %s, %s, false)", astuple(mark)[:3])
            cursor.execute(
                "GRANT SELECT ON schema_level, django_migrations TO PUBLIC"
            )  # to see how far it is
    return mark


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

    Asked again, nothing changes. A first start that an earlier version began is one of this level now.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE schema_level SET complete = true, level = %s, programs_from = %s, digest = %s"
            " WHERE NOT complete",
            [CURRENT.number, CURRENT.programs_from, digest()],
        )
        if not cursor.rowcount:
            return
        admit()
        for path in OTHER_SQL:
            cursor.execute(path.read_text())
        cursor.execute("\n".join(tracking.statements()))
        cursor.execute(
            "".join(trigger.compile(model).install_sql for model, trigger in pgtrigger.registered())
        )


def raise_level() -> None:
    """Say that a database of an earlier level has all of this one, once its migrations have run.

    Programs that are shut out of it already stay so.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE schema_level SET level = %s, programs_from = greatest(programs_from, %s), digest = %s"
            " WHERE complete AND level < %s",
            [CURRENT.number, CURRENT.programs_from, digest(), CURRENT.number],
        )


def pending_migrations() -> list[str]:
    """Names of what has not run, in order. Raises OtherSchemaError, and django.db.Error if nothing answers."""
    mark = refuse_other()
    if mark is not None and mark.is_current and _all_applied():
        return []
    from django.db.migrations.executor import MigrationExecutor  # loads all of them

    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    pending = [f"{migration.app_label}.{migration.name}" for migration, _ in plan]
    if mark is None or not mark.is_current:
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
    except OtherSchemaError as error:
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
