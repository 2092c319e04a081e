"""That nothing is blocked without a reason, and nothing that a quota demands is forgotten."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Exists, OuterRef

from billing.models import QuotaBlock, QuotaBlockState
from billing.proof.checks import Check
from billing.quotas.blocks import list_placed
from clusters.models import AccountBlock, BlockReason
from portal.sql_files import Statements

sql = Statements(__file__, "block_proof.sql")

SHOWN = 10
SLOW = timedelta(minutes=10)
"""So long a row may wait for a worker: passes are a minute apart, and one may be busy with many schedulers."""
WAITING = (QuotaBlockState.REQUESTED, QuotaBlockState.LIFTING)


def prove_blocks(*, moment: datetime) -> Check:
    """Each block on a scheduler has a reason, and what quotas demand stands there, or says why it does not.

    Names up to ten places where that is not so. Four queries.
    """
    reasons = BlockReason.objects.filter(block=OuterRef("pk"), ended_at=None)
    blocks = AccountBlock.objects.filter(~Exists(reasons), ended_at=None).select_related("cluster")
    broken = [
        f"{row}{f', user {row.user}' if row.user else ''}: blocked without a reason" for row in blocks[:SHOWN]
    ]
    rows = QuotaBlock.objects.filter(ended_at=None, error="").select_related(
        "account__cluster", "quota", "tenant"
    )
    ours = rows.filter(
        ~Exists(list_placed()), state=QuotaBlockState.BLOCKED, holds=False, holds_instead=False
    )
    broken += [
        f"{row.account}: {row.cause} counts it as blocked, and no block has it as a reason"
        for row in ours[:SHOWN]
    ]
    late = rows.filter(state__in=WAITING, next_at__lt=moment - SLOW)
    broken += [
        f"{row}: {row.cause}, due at {row.next_at:%Y-%m-%d %H:%M} UTC and not tried" for row in late[:SHOWN]
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql.MISSING, {"moment": moment, "shown": SHOWN})
        broken += [
            f"{cluster}/{account}: budget {quota} of {tenant} is used up, and no block was requested"
            for tenant, quota, cluster, account in cursor.fetchall()
        ]
    return Check("blocks have reasons, and what quotas demand is done or says why not", broken[:SHOWN])
