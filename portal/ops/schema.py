"""Whether the database has the tables that this code expects."""

from __future__ import annotations

import sys

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.migrations.executor import MigrationExecutor

current: list[bool] = []
"""Whether this process has found the schema to be current: it is asked for once, which takes a while."""


def pending_migrations() -> list[str]:
    """Names of the migrations that have not run, in order; raises django.db.Error if nothing answers."""
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def refuse_unmigrated() -> None:
    """End this process with code 3 and a sentence unless the schema is current: half a schema loses data."""
    if current:
        return
    try:
        pending = pending_migrations()
    except Error as error:
        sentence = f"The database cannot be reached: {str(error).strip().splitlines()[0]}"
    else:
        if not pending:
            current.append(True)
            return
        told = "1 migration has" if len(pending) == 1 else f"{len(pending)} migrations have"
        sentence = f"{told} not run ({pending[0]} first): run the command migrate."
    finally:
        connections.close_all()
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
    sys.exit(3)
