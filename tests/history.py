"""The history of rows, as a story asks for it."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from portal.core.audit.models import AuditEntry


def history(of: Model | type[Model], *columns: str) -> list[tuple[Any, ...]]:
    """(operation, value of each column from then on) of each change of a row, or of a model's rows; oldest first."""
    entries = AuditEntry.objects.of_table(of) if isinstance(of, type) else AuditEntry.objects.of(of)
    rows: dict[str, dict[str, Any]] = {}
    changes = []
    for entry in entries:
        row = rows.setdefault(entry.key, {})
        row |= entry.after or {}
        changes.append((entry.operation, *(row.get(column) for column in columns)))
    return changes
