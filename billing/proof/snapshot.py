"""A standing database to prove in, and what is still to be rated in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from portal.core.outbox.models import OutboxMessage

RERATING = ("billing.tasks.rate_accounts", "billing.tasks.rate_tenants")
"""Until they are done, what is rated is not what is owned and priced now."""


def changes_to_rate() -> int:
    """Changes of ownership or prices whose usage waits in the outbox to be rated again."""
    return OutboxMessage.objects.undone().filter(task__in=RERATING).count()


@contextmanager
def snapshot() -> Iterator[CursorWrapper]:
    """A cursor for which the database stands still, as it was at its first statement."""
    with transaction.atomic(), connection.cursor() as cursor:
        if not connection.savepoint_ids:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield cursor
