"""What waits in the outbox to be rated again: until that is done, what is rated is not what is owned and priced now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import connection

from portal.core.outbox.models import OutboxMessage
from portal.sql_files import Statements

sql = Statements(__file__, "reratings.sql")

TASKS = ("billing.tasks.rate_accounts", "billing.tasks.rate_tenants")

UNDER_WAY = (
    "Its usage, or usage that it pays for, is being rated again after a change of prices or owners "
    "(Administration → Outbox messages lists what is left)"
)


def find_waiting(messages: Sequence[int]) -> set[int]:
    """Of these messages of TASKS those that wait for an earlier one, since both concern one tenant. One query.

    Else a tenant with many of them would take all places of the queue, and all but one of these only to wait for its
    lock.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql.WAITING, {"tasks": list(TASKS), "messages": list(messages)})
        return {message for (message,) in cursor.fetchall()}


def count_changes() -> int:
    """Changes of ownership or prices whose usage waits to be rated again, or is rated in part."""
    return OutboxMessage.objects.undone().filter(task__in=TASKS).count()


def find_tenants(among: Iterable[int]) -> set[int]:
    """Which of these tenants it may change statements of: whose usage it is, and who pays for that. One query.

    Who holds their locks sees each slice whole: a slice holds them, too, until the next one is in the outbox.
    """
    tenants = list(among)
    if not tenants:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(sql.TENANTS, {"tasks": list(TASKS), "tenants": tenants})
        return {tenant for (tenant,) in cursor.fetchall()}
