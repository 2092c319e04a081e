"""What migrations of later releases change beside the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pgtrigger
from django.apps import apps
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.state import ProjectState

from portal.core.audit import tracking
from portal.env import ROOT

DIRECTORY = ROOT / "portal" / "schema" / "upgrades"


class Beside(Operation):
    """What a migration changes beside the tables, over a database that has those of the release before.

    `sql` names a file of `portal/schema/upgrades/`, `models` those ("billing.SealedMonth") whose triggers and history
    are new or others. A database that is made from nothing runs none of it: `portal/schema/*.sql` and the models have
    it all.
    """

    reduces_to_sql = True
    reversible = False
    category = OperationCategory.SQL

    def __init__(self, sql: str = "", models: Sequence[str] = ()) -> None:
        self.sql = sql
        self.models = models

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        pass

    def database_forwards(self, _app_label: str, schema_editor: Any, *_: ProjectState) -> None:
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT complete FROM schema_level")
            if not cursor.fetchone()[0]:
                return
            if self.sql:
                cursor.execute((DIRECTORY / self.sql).read_text())
            if self.models:
                cursor.execute("\n".join(self._triggers()))

    def _triggers(self) -> Iterator[str]:
        tables = {apps.get_model(name)._meta.db_table for name in self.models}
        yield from tracking.statements(tables)
        for model, trigger in pgtrigger.registered():
            if model._meta.db_table in tables:
                yield trigger.compile(model).install_sql

    def describe(self) -> str:
        return f"Change what stands beside the tables: {', '.join(filter(None, (self.sql, *self.models)))}"


class IndexPartitions(Operation):
    """An index of a partitioned table, made table by table while everybody reads and writes them.

    In a migration that is no transaction. Killed anywhere it goes on: what is attached stays, the rest is made
    again. A database that is made from nothing has it from `portal/schema/*.sql`.
    """

    reduces_to_sql = False
    reversible = False
    atomic = False
    category = OperationCategory.SQL

    def __init__(self, table: str, name: str, columns: Sequence[str]) -> None:
        self.table, self.name, self.columns = table, name, columns

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        pass

    def database_forwards(self, _app_label: str, schema_editor: Any, *_: ProjectState) -> None:
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT complete, current_setting('lock_timeout') FROM schema_level")
            complete, patience = cursor.fetchone()
            if not complete:
                return
            columns = ", ".join(self.columns)
            # From now on new partitions have it.
            cursor.execute(f"CREATE INDEX IF NOT EXISTS {self.name} ON ONLY {self.table} ({columns})")
            cursor.execute(_LACKING, {"table": self.table, "index": self.name})
            for (part,) in cursor.fetchall():
                index = "_".join([part, *self.columns, "idx"])
                cursor.execute("SET lock_timeout = 0")  # it waits for others, and nobody for it
                cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
                cursor.execute(f"CREATE INDEX CONCURRENTLY {index} ON {part} ({columns})")
                cursor.execute("SELECT set_config('lock_timeout', %s, false)", [patience])
                cursor.execute(f"ALTER INDEX {self.name} ATTACH PARTITION {index}")

    def describe(self) -> str:
        return f"Index {self.table} by {', '.join(self.columns)}"


_LACKING = """
SELECT p.inhrelid::regclass::text FROM pg_inherits p
WHERE p.inhparent = %(table)s::regclass AND NOT EXISTS (
    SELECT FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid
    WHERE i.inhparent = %(index)s::regclass AND x.indrelid = p.inhrelid)
ORDER BY 1
"""
