"""People who are erased are erased from the history too; that something changed, and when, stays."""

from __future__ import annotations

import json
from collections.abc import Sequence

from django.db import connection

from portal.core.audit.tracking import TRACKED

WHO = "an erased person"
USER_NAMES = {"user", "scheduler_users"}
"""Personal fields with user names of schedulers."""


def erase_people(*, tenant_id: int, emails: Sequence[str]) -> None:
    """Erase from the tenant's entries what its tables call personal, and from all entries these people as authors.

    A value that is not empty becomes "(erased)". Again, there is nothing left to erase. For a caller that has erased
    the rows themselves in the same transaction, since doing that writes history too.
    """
    personal = {tracked.table: tracked.columns(tracked.personal) for tracked in TRACKED if tracked.tenant}
    with connection.cursor() as cursor:
        cursor.execute("SELECT audit_erase(%s, %s::jsonb, NULL)", [tenant_id, json.dumps(personal)])
        cursor.execute("SELECT audit_erase_authors(%s, %s)", [list(emails), WHO])


def erase_names(*, tenant_id: int, names: Sequence[str]) -> None:
    """Erase these user names of schedulers from the tenant's entries, wherever they stand alone or in a list.

    As `erase_people`, for some of the tenant's people. Reads the tenant's history once.
    """
    personal = {
        tracked.table: tracked.columns([name for name in tracked.personal if name in USER_NAMES])
        for tracked in TRACKED
        if tracked.tenant and USER_NAMES & {*tracked.personal}
    }
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT audit_erase(%s, %s::jsonb, %s::text[])", [tenant_id, json.dumps(personal), list(names)]
        )
