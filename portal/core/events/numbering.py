"""Giving events their places in the order of commits, by one process at a time.

An id comes from a sequence when a row is written, and may become visible long after higher ones. Whoever reads on from
the last id would jump over it. A number is given to what is committed already, so what follows has higher ones.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection, transaction

from portal.core.events.models import Event
from portal.sql_files import Statements

NUMBERER_LOCK = 0x0E7E27  # of a transaction; the number only has to be ours
BATCH = 1_000
RETENTION = timedelta(days=90)
MOST_DELETED = 10_000  # in one transaction
sql = Statements(__file__, "numbering.sql")


@transaction.atomic
def number_committed() -> tuple[int, int] | None:
    """Place the committed events that have no place, up to BATCH; the first and the last number, None for none.

    Of two callers at once, one waits for the other and goes on behind it. What the caller's transaction writes too,
    such as deliveries, commits with the numbers.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [NUMBERER_LOCK])
        cursor.execute(sql.NUMBER, {"most": BATCH})
        numbers = [number for (number,) in cursor.fetchall()]
    return (min(numbers), max(numbers)) if numbers else None


def forget_old(*, moment: datetime) -> int:
    """Delete numbered events of more than 90 days, some thousand at a time; how many. Nothing else refers to them."""
    old = Event.objects.numbered().filter(at__lt=moment - RETENTION).order_by("at")
    gone = 0
    while keys := list(old.values_list("pk", flat=True)[:MOST_DELETED]):
        gone += Event.objects.filter(pk__in=keys).delete()[0]
    return gone
