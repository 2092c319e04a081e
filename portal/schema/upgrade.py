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
