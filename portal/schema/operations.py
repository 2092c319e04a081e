"""Operations of migrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.state import ProjectState


class CreateModels(Operation):
    """Create tables that refer to each other, each written before those that refer to it.

    As operations of their own, Django would render the state of all models anew after each of them: with a hundred
    tables that is most of the time in which a database is made. Here they are rendered once.
    """

    reduces_to_sql = True
    reversible = False
    category = OperationCategory.ADDITION
    serialization_expand_args: ClassVar[list[str]] = ["tables"]

    def __init__(self, tables: Sequence[CreateModel]) -> None:
        self.tables = tables

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        state.__dict__.pop("apps", None)  # rendered again, once, when somebody asks for it
        for table in self.tables:
            table.state_forwards(app_label, state)

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        for table in self.tables:
            table.database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        return f"Create {len(self.tables)} tables"
