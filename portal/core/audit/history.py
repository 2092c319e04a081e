"""The one query of the history: for the pages of tenants and operators, their CSV, and the API."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from portal.core.audit.models import AuditEntry, AuditEntryQuerySet

COLUMNS = ("id", "at", "table", "key", "operation", "before", "after", "tenant_id", "who", "through")
"""What a tenant's page may read; the reason is for operators."""


def changes(
    *,
    tenants: Collection[int] | None = None,
    tables: Collection[str] = (),
    keys: Collection[str] = (),
    operations: Collection[str] = (),
    who: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> AuditEntryQuerySet:
    """Changes during [since, until) to rows of these tenants (None: of all, and of none), in no order.

    An empty collection narrows nothing. `who` is a part of the author's name, in any case.
    """
    rows = AuditEntry.objects.all()
    if tenants is not None:
        rows = rows.filter(tenant_id__in=tenants)
    for column, values in (("table", tables), ("key", keys), ("operation", operations)):
        if values:
            rows = rows.filter(**{f"{column}__in": values})
    if who:
        rows = rows.filter(who__icontains=who)
    if since is not None:
        rows = rows.filter(at__gte=since)
    return rows.filter(at__lt=until) if until is not None else rows
