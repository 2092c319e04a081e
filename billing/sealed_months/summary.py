"""Months and their files as programs read them: the commands, the page and the API show the same."""

from __future__ import annotations

from typing import Any

from billing.models import SealedMonth
from billing.sealed_months.readiness import MonthState
from portal.sentences import sentence


def as_data(state: MonthState) -> dict[str, Any]:
    """A month, with the name of its state."""
    row = state.sealed
    return {
        "month": f"{state.month:%Y-%m}",
        "state": state.name,
        "changed_at": state.changed_at,
        "sealed_at": row.sealed_at if row else None,
        "dropped_at": row.dropped_at if row else None,
        **sizes(row),
        "blockers": [sentence(blocker) for blocker in state.blockers],
    }


def sizes(row: SealedMonth | None) -> dict[str, int]:
    """Jobs, files and bytes of a sealed month; zeros of another."""
    files = list(row.files.all()) if row else []
    return {
        "records": sum(file.rows for file in files if file.kind == "records"),
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
    }
