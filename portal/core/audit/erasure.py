"""People who are erased are erased from the history too; that something changed, and when, stays."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from portal.core.audit.tracking import TRACKED

WHO = "an erased person"


def erase_people(*, tenant_id: int, emails: Sequence[str]) -> None:
    """Erase from the tenant's entries what its tables call personal, and from all entries these people as authors.

    A value that is not empty becomes "(erased)". Again, there is nothing left to erase. For a caller that has erased
    the rows themselves in the same transaction, since doing that writes history too.
    """
    with connection.cursor() as cursor:
        for tracked in TRACKED:
            if tracked.personal and tracked.tenant:
                cursor.execute(
                    "SELECT audit_erase(%s, %s, %s)",
                    [tracked.table, tenant_id, tracked.columns(tracked.personal)],
                )
        cursor.execute("SELECT audit_erase_authors(%s, %s)", [list(emails), WHO])


def erase_names(*, tenant_id: int, names: Sequence[str]) -> None:
    """Erase these names from whatever the tenant's tables call personal, wherever they stand alone or in a list.

    As `erase_people`, for some of the tenant's people.
    """
    with connection.cursor() as cursor:
        for tracked in TRACKED:
            if tracked.personal and tracked.tenant:
                cursor.execute(
                    "SELECT audit_erase_names(%s, %s, %s, %s)",
                    [tracked.table, tenant_id, tracked.columns(tracked.personal), list(names)],
                )
