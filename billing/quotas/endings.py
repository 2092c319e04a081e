"""Announcing that running jobs are ended: rows that a worker carries out once their grace is over, and who is told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from billing.models import Notice, NoticeKind, Quota, QuotaAction, QuotaEnding, QuotaEndingState
from billing.quotas.jobs import Demand
from billing.quotas.status import scope_text
from billing.rules.quotas import GRACE
from clusters.models import ClusterKind
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType

BEFORE = timedelta(minutes=15)
"""So long before the end it is told again."""
ANNOUNCED, WATCHED = QuotaEndingState.ANNOUNCED, QuotaEndingState.WATCHED
ENDS_ON = (ClusterKind.SLURM,)
"""Clusters whose single jobs can be ended."""


def announce_endings(demands: Sequence[Demand], *, tenants: Collection[int], moment: datetime) -> None:
    """Within the pass: announce the endings that its figures demand, and stop those that nothing demands any more.

    The same demands again change nothing. One query where nothing is to be ended.
    """
    rows = QuotaEnding.objects.filter(tenant__in=tenants, closed_at=None).select_related("quota", "account")
    current = {(row.quota_id, row.account_id): row for row in rows.order_by("pk")}
    wanted = {(one.quota.pk, one.account.pk): one for one in demands if ends_jobs(one)}
    closed = [row for key, row in current.items() if not _is_same(row, wanted.get(key))]
    _close(closed, moment)
    _postpone([row for row in current.values() if row not in closed], wanted)
    kept = current.keys() - {(row.quota_id, row.account_id) for row in closed}
    new = [_announced(one, moment) for key, one in sorted(wanted.items()) if key not in kept]
    QuotaEnding.objects.bulk_create(new)
    tell([row for row in new if row.state == ANNOUNCED], "announced", moment=moment)


def list_open(quotas: Sequence[Quota]) -> dict[int, list[QuotaEnding]]:
    """By quota those that are announced or done while all of it is used. One query."""
    rows = QuotaEnding.objects.filter(quota__in=quotas, closed_at=None).select_related("account")
    by_quota: dict[int, list[QuotaEnding]] = defaultdict(list)
    for row in rows.order_by("account__name", "pk"):
        by_quota[row.quota_id].append(row)
    return by_quota


def ends_jobs(one: Demand) -> bool:
    """Whether the quota has jobs ended, and the operator lets it do so on this cluster."""
    cluster = one.account.cluster
    return one.quota.action == QuotaAction.END_JOBS and cluster.may_end_jobs and cluster.kind in ENDS_ON


@transaction.atomic
def warn_again(*, moment: datetime) -> int:
    """Tell of what is ended within BEFORE once more; each once, by however many at once. How many."""
    rows = QuotaEnding.objects.select_for_update(of=("self",), skip_locked=True).filter(
        state=ANNOUNCED, closed_at=None, warned_at=None, due_at__gt=moment, due_at__lte=moment + BEFORE
    )
    listed = list(rows.select_related("quota", "account").order_by("pk"))
    QuotaEnding.objects.filter(pk__in=[row.pk for row in listed]).update(warned_at=moment)
    tell(listed, "soon", moment=moment)
    return len(listed)


def tell(rows: Sequence[QuotaEnding], stage: str, *, moment: datetime, jobs: Iterable[str] = ()) -> None:
    """One e-mail of each quota, and an event; within the caller's transaction. `jobs`: those that were ended."""
    by_quota: dict[Quota, list[QuotaEnding]] = defaultdict(list)
    for row in rows:
        by_quota[row.quota].append(row)
    ended = list(jobs)
    Notice.objects.bulk_create(
        Notice(
            tenant_id=quota.tenant_id,
            kind=NoticeKind.QUOTA_ENDING,
            key=f"quota-ending:{stage}:{listed[0].pk}:{len(listed[0].jobs)}",
            details=_details(quota, listed, stage, ended),
            created_at=moment,
            not_before=moment,
        )
        for quota, listed in by_quota.items()
    )
    events.record_many(
        Fact(
            type=EventType.QUOTA_ENDED if stage == "ended" else EventType.QUOTA_ENDING,
            kind="quo",
            key=quota.pk,
            state=stage,
            tenant=quota.tenant_id,
        )
        for quota in by_quota
    )


def _details(quota: Quota, rows: Sequence[QuotaEnding], stage: str, jobs: Sequence[str]) -> dict[str, Any]:
    """What the e-mail says, as values: it is written when it is sent."""
    return {
        "members": list(quota.recipients),
        "rows": [row.pk for row in rows],
        "stage": stage,
        "name": quota.name,
        "scope": scope_text(quota),
        "accounts": [row.account.name for row in rows],
        "due_at": min(row.due_at for row in rows).isoformat(),
        "jobs": list(jobs),
    }


def _is_same(row: QuotaEnding, one: Demand | None) -> bool:
    return one is not None and (row.state == WATCHED) == one.quota.watch


def _close(rows: Sequence[QuotaEnding], moment: datetime) -> None:
    announced = [row for row in rows if row.state == ANNOUNCED]
    others = [row.pk for row in rows if row.state != ANNOUNCED]
    QuotaEnding.objects.filter(pk__in=others).update(closed_at=moment)
    QuotaEnding.objects.filter(pk__in=[row.pk for row in announced]).update(
        state=QuotaEndingState.STOPPED, closed_at=moment, error=""
    )
    tell(announced, "stopped", moment=moment)


def _postpone(rows: Sequence[QuotaEnding], wanted: dict[tuple[int, int], Demand]) -> None:
    """By a grace that was made longer. A shorter one holds from the next announcement on."""
    for row in rows:
        due = row.began_at + _grace(wanted[row.quota_id, row.account_id].quota)
        if row.state == ANNOUNCED and due > row.due_at:
            QuotaEnding.objects.filter(pk=row.pk, state=ANNOUNCED).update(
                due_at=due, next_at=due, warned_at=None
            )


def _grace(quota: Quota) -> timedelta:
    return timedelta(minutes=quota.grace_minutes or GRACE)


def _announced(one: Demand, moment: datetime) -> QuotaEnding:
    due = moment + _grace(one.quota)
    return QuotaEnding(
        tenant_id=one.quota.tenant_id,
        quota=one.quota,
        account=one.account,
        state=WATCHED if one.quota.watch else ANNOUNCED,
        began_at=moment,
        due_at=due,
        next_at=due,
        # A grace of no more than that is told of once.
        warned_at=moment if due - moment <= BEFORE else None,
    )
