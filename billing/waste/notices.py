"""Who is told of idle jobs: one e-mail of each rule and user, and an event of each job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from billing.models import Notice, NoticeKind, WasteFinding
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType


def tell(rows: Sequence[WasteFinding], stage: str, *, moment: datetime) -> None:
    """Within the caller's transaction. `stage`: found, announced, soon or ended; rows have their rule loaded."""
    by_user: dict[tuple[int, int, str], list[WasteFinding]] = defaultdict(list)
    for row in rows:
        by_user[row.tenant_id, row.rule_id, row.user].append(row)
    Notice.objects.bulk_create(
        Notice(
            tenant_id=tenant,
            kind=NoticeKind.WASTE,
            key=f"waste:{stage}:{listed[0].pk}:{moment.timestamp():.0f}",
            details=_details(listed, stage, user, moment),
            created_at=moment,
            not_before=moment,
        )
        for (tenant, _rule, user), listed in by_user.items()
    )
    events.record_many(
        Fact(
            type=EventType.WASTE_ENDED if stage == "ended" else EventType.WASTE_FOUND,
            kind="wst",
            key=row.pk,
            state=row.state if stage == "ended" else stage,
            tenant=row.tenant_id,
        )
        for row in rows
    )


def _details(rows: Sequence[WasteFinding], stage: str, user: str, moment: datetime) -> dict[str, Any]:
    """What the e-mail says, as values: it is written when it is sent."""
    rule = rows[0].rule
    due = [row.due_at for row in rows if row.due_at is not None]
    return {
        "rows": [row.pk for row in rows],
        "stage": stage,
        "rule": rule.name,
        "hours": rule.hours,
        "action": rule.action,
        "user": user,
        "due_at": min(due).isoformat() if due else "",
        "at": moment.isoformat(),
        "jobs": [
            {
                "job": row.job_id,
                "name": row.job_name,
                "cluster": row.cluster,
                "gpus": row.gpus,
                "gpu_model": row.gpu_model,
                "idle_since": row.idle_since.isoformat(),
                "hour_cost": None if row.hour_cost is None else str(row.hour_cost),
                "currency": row.currency,
            }
            for row in rows
        ],
    }
