"""Settling rows that were set aside."""

from __future__ import annotations

from django.db.models import QuerySet
from django.db.models.functions import Now

from clusters.models import Quarantined


def dismiss(*, rows: QuerySet[Quarantined], reason: str, who: str) -> int:
    """Settle the rows that are still open, with a reason; how many. The same row read again stays settled.

    Raises ValueError without a reason.
    """
    if not reason.strip():
        raise ValueError("Say why these rows are dismissed; the reason is kept with them.")
    return rows.filter(resolved_at=None).update(
        resolved_at=Now(), resolution=f"Dismissed by {who}: {reason.strip()}"
    )
