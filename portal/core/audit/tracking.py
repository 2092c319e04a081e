"""Which tables have a history, and the triggers that write it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.db.models import Model

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Tracked:
    """Names of fields: `exclude`d ones are no part of the history; `personal` ones name people and can be erased."""

    model: type[Model]
    exclude: tuple[str, ...]
    personal: tuple[str, ...]

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    def columns(self, names: Sequence[str]) -> list[str]:
        columns = {field.name: str(field.column) for field in self.model._meta.concrete_fields}
        return [columns[name] for name in names]

    @property
    def tenant(self) -> str:
        """The column that says whose row it is; "" of a table that belongs to no tenant."""
        columns = {field.column for field in self.model._meta.fields}
        if self.table == "tenants_tenant":
            return "id"
        return "tenant_id" if "tenant_id" in columns else ""


TRACKED: list[Tracked] = []


def track(*, exclude: Sequence[str] = (), personal: Sequence[str] = ()) -> Callable[[type[M]], type[M]]:
    """Keep an entry of history for every row that is inserted, updated or deleted, raw SQL included.

    A change of `exclude`d fields alone writes none: those that the system moves by itself all day, and secrets.
    `personal` fields name people: their values are erased with the people (`portal.core.audit.erasure`).
    """

    def decorate(model: type[M]) -> type[M]:
        TRACKED.append(Tracked(model, tuple(exclude), tuple(personal)))
        return model

    return decorate


TRIGGERS = (("insert", "NEW TABLE AS new_rows"), ("delete", "OLD TABLE AS old_rows"),
            ("update", "OLD TABLE AS old_rows NEW TABLE AS new_rows"))  # fmt: skip


def statements(only: Collection[str] | None = None) -> Iterator[str]:
    """The SQL that has tracked tables write their history, all or these; for a database that has `audit.sql`."""
    for tracked in sorted(TRACKED, key=lambda entry: entry.table):
        if only is not None and tracked.table not in only:
            continue
        excluded = "{" + ",".join(sorted(tracked.columns(tracked.exclude))) + "}"
        for operation, tables in TRIGGERS:
            yield (
                f"CREATE OR REPLACE TRIGGER audit_{operation} AFTER {operation.upper()} ON {tracked.table} "
                f"REFERENCING {tables} FOR EACH STATEMENT "
                f"EXECUTE FUNCTION audit_record('{tracked.tenant}', '{excluded}');"
            )
