"""Announcing that running jobs are ended: rows that a worker carries out once their grace is over, and who is told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from billing.models import (
    Notice,
    NoticeKind,
    Quota,
    QuotaAction,
    QuotaBlock,
    QuotaBlockState,
    QuotaChange,
    QuotaEnding,
    QuotaEndingState,
)
from billing.quotas.jobs import Demand, list_ended
from billing.quotas.status import scope_text
from billing.rules.quotas import GRACE
from clusters.models import Account, Act, ActKind, ActOutcome, ClusterKind
from clusters.models.acts import OPEN
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType

BEFORE = timedelta(minutes=15)
"""So long before the end it is told again."""
LEAST = timedelta(minutes=10)
"""So long before the end it is told again where no worker ran in time: the end waits for that."""
ANNOUNCED, WATCHED = QuotaEndingState.ANNOUNCED, QuotaEndingState.WATCHED
SCRAPE = timedelta(minutes=1)
"""So much earlier a pod may be read to have ended than it did."""


def announce_endings(demands: Sequence[Demand], *, tenants: Collection[int], moment: datetime) -> None:
    """Within the pass: announce the endings that its figures demand, and stop those that nothing demands any more.

    The same demands again change nothing. One query where nothing is to be ended.
    """
    rows = QuotaEnding.objects.select_for_update(of=("self",)).filter(tenant__in=tenants, closed_at=None)
    rows = rows.select_related("quota", "account")
    current = {(row.quota_id, row.account_id): row for row in rows.order_by("pk")}
    wanted = {(one.quota.pk, one.account.pk): one for one in demands if ends_jobs(one)}
    closed = [row for key, row in current.items() if not _is_same(row, wanted.get(key))]
    closed = _close(closed, moment)
    _postpone([row for row in current.values() if row not in closed], wanted)
    kept = current.keys() - {(row.quota_id, row.account_id) for row in closed}
    new = [
        _announced(one.quota, one.account, moment) for key, one in sorted(wanted.items()) if key not in kept
    ]
    QuotaEnding.objects.bulk_create(new)
    tell([row for row in new if row.state == ANNOUNCED], "announced", moment=moment)


def ends_jobs(one: Demand) -> bool:
    """Whether the quota has jobs ended, and the operator lets it do so on this cluster."""
    cluster = one.account.cluster
    ends = one.quota.action == QuotaAction.END_JOBS and cluster.may_end_jobs
    return ends and cluster.kind in list_kinds(one.quota)


def list_kinds(quota: Quota) -> list[ClusterKind]:
    """On which clusters it can end jobs: single ones on Slurm, and all that run in an account through Kueue."""
    is_of_all = not quota.user and quota.demand_above is None
    return [ClusterKind.SLURM, *([ClusterKind.PROMETHEUS] if is_of_all else [])]


def grace(quota: Quota) -> timedelta:
    """From the announcement to the end, as the quota has it now."""
    return timedelta(minutes=quota.grace_minutes or GRACE)


@transaction.atomic
def warn_again(*, moment: datetime) -> int:
    """Tell of what is ended within BEFORE once more; each once, by however many at once. How many.

    Nothing is ended sooner than LEAST after it: where no worker ran in time, the end is postponed.
    """
    rows = QuotaEnding.objects.select_for_update(of=("self",), skip_locked=True).filter(
        state=ANNOUNCED, closed_at=None, warned_at=None, due_at__lte=moment + BEFORE
    )
    listed = list(rows.select_related("quota", "account").order_by("pk"))
    for row in listed:
        row.warned_at = moment
        if row.due_at < moment + LEAST:
            row.due_at = row.next_at = moment + BEFORE
        row.save(update_fields=["warned_at", "due_at", "next_at"])
    tell(listed, "soon", moment=moment)
    return len(listed)


def have_leaves_looked_at() -> None:
    """Have the pass look at tenants for whom an operator's leave was given or withdrawn since. Two queries."""
    rows = QuotaEnding.objects.filter(closed_at=None, account__cluster__may_end_jobs=False)
    current = QuotaEnding.objects.filter(quota=OuterRef("quota"), account=OuterRef("account"), closed_at=None)
    blocks = QuotaBlock.objects.filter(
        ~Exists(current),
        state__in=(QuotaBlockState.REQUESTED, QuotaBlockState.BLOCKED, QuotaBlockState.WATCHED),
        ended_at=None,
        quota__action=QuotaAction.END_JOBS,
        account__cluster__may_end_jobs=True,
    )
    blocks = blocks.filter(
        Q(account__cluster__kind=ClusterKind.SLURM)
        | Q(account__cluster__kind=ClusterKind.PROMETHEUS, quota__user="", quota__demand_above=None)
    )
    tenants = {*rows.values_list("tenant", flat=True), *blocks.values_list("tenant", flat=True)}
    QuotaChange.objects.bulk_create(QuotaChange(tenant_id=tenant) for tenant in sorted(tenants))


def load_cancels(rows: Sequence[QuotaEnding]) -> dict[int, list[Act]]:
    """By ending the cancels and drains that were carried out or begun for it, by a person or not. One query."""
    if not rows:
        return {}
    acts = Act.objects.filter(
        kind__in=(ActKind.CANCEL, ActKind.BLOCK),
        cluster__in={row.account.cluster_id for row in rows},
        account__in={row.account.name for row in rows},
        who__in=[row.source for row in rows],
        outcome__in=(ActOutcome.DONE, *OPEN),
    )
    by_source: dict[str, list[Act]] = defaultdict(list)
    for act in acts.order_by("pk"):
        by_source[act.who].append(act)
    return {row.pk: by_source[row.source] for row in rows}


def add_ended(row: QuotaEnding, cancels: Iterable[Act]) -> list[str]:
    """The numbers of jobs that these have ended and the row does not name yet; it names them then, unsaved.

    What a drain has ended is known once it was read.
    """
    numbers = dict.fromkeys(
        number for act in cancels if act.outcome == ActOutcome.DONE for number in _list_ended(row, act)
    )
    ended = [number for number in numbers if number not in row.jobs]
    row.jobs = [*row.jobs, *ended]
    return ended


def _list_ended(row: QuotaEnding, act: Act) -> list[str]:
    if act.kind == ActKind.CANCEL:
        return [key.partition("@")[0] for key in sorted(act.before)]
    if row.drained_at is None:
        return []
    return list_ended(row.account, started_by=row.began_at, since=row.drained_at - SCRAPE)


def announce_anew(row: QuotaEnding, quota: Quota, *, moment: datetime) -> None:
    """Within the caller's transaction, for jobs that started since: the row, locked, ends, and another one begins."""
    row.state = QuotaEndingState.DONE if row.jobs else QuotaEndingState.STOPPED
    row.closed_at = row.next_at = moment
    row.save(update_fields=["state", "closed_at", "next_at"])
    new = _announced(quota, row.account, moment)
    new.save()
    tell([new], "announced", moment=moment)


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
            key=f"quota-ending:{stage}:{listed[0].pk}:{len(listed[0].jobs)}:{listed[0].due_at.timestamp():.0f}",
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
        "is_debt": quota.wallet_id is not None,
        "scope": scope_text(quota),
        "accounts": [row.account.name for row in rows],
        "due_at": min(row.due_at for row in rows).isoformat(),
        "jobs": list(jobs),
    }


def _is_same(row: QuotaEnding, one: Demand | None) -> bool:
    """Whether what is demanded was announced: not where the quota counts, or ends, more jobs by now."""
    if one is None:
        return False
    is_wider = row.began_at < one.quota.counts_since or (one.quota.ends_older and not row.ends_older)
    return (row.state == WATCHED) == one.quota.watch and not is_wider


def _close(rows: Sequence[QuotaEnding], moment: datetime) -> list[QuotaEnding]:
    """Those that could be closed: of one whose cancel is under way, or not settled, it is not known what was ended."""
    cancels = load_cancels(rows)
    settled = [row for row in rows if not any(act.outcome in OPEN for act in cancels[row.pk])]
    for row in settled:
        ended = add_ended(row, cancels[row.pk])
        if row.jobs:
            row.state = QuotaEndingState.DONE
        elif row.state == ANNOUNCED:
            row.state = QuotaEndingState.STOPPED
        row.closed_at, row.error = moment, ""
        row.next_at, row.tries = moment, 0  # what it has drained is taken back at once
        row.save(update_fields=["jobs", "state", "closed_at", "error", "next_at", "tries"])
        if ended:
            tell([row], "ended", moment=moment, jobs=ended)
    tell([row for row in settled if row.state == QuotaEndingState.STOPPED], "stopped", moment=moment)
    return settled


def _postpone(rows: Sequence[QuotaEnding], wanted: dict[tuple[int, int], Demand]) -> None:
    """By a grace that was made longer. A shorter one holds from the next announcement on."""
    for row in rows:
        one = wanted.get((row.quota_id, row.account_id))
        due = row.began_at + grace(one.quota) if one else row.due_at
        if row.state == ANNOUNCED and due > row.due_at:
            QuotaEnding.objects.filter(pk=row.pk, state=ANNOUNCED).update(
                due_at=due, next_at=due, warned_at=None
            )


def _announced(quota: Quota, account: Account, moment: datetime) -> QuotaEnding:
    due = moment + grace(quota)
    return QuotaEnding(
        tenant_id=quota.tenant_id,
        quota=quota,
        account=account,
        state=WATCHED if quota.watch else ANNOUNCED,
        began_at=moment,
        due_at=due,
        next_at=due,
        ends_older=quota.ends_older,
        # A grace of no more than that is told of once.
        warned_at=moment if due - moment <= BEFORE else None,
    )
