"""The pass over waste rules: what meets them is written down and announced, what does not any more is closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from billing.models import WasteAction, WasteClosed, WasteFinding, WasteRule, WasteState
from billing.waste import acts, idle_jobs, notices
from billing.waste.idle_jobs import IdleJob, Present
from billing.waste.rules import list_rules
from clusters.models import Cluster, ClusterKind
from portal.core import locks
from portal.core.locks import Work

SETTLE = timedelta(minutes=12)
"""After an hour is over, before its telemetry can have been read."""
HOUR = timedelta(hours=1)


@dataclass(slots=True)
class WasteTally:
    """What a pass wrote, in numbers."""

    findings: int = 0
    closed: int = 0


def review_waste(*, moment: datetime) -> WasteTally:
    """Look at all rules in force. Again at the same moment, or by two at once, it changes nothing.

    Four queries and a lock where nothing changed and nothing is open, seven where something is.
    """
    done = WasteTally()
    with locks.alone(Work.REVIEWING_WASTE) as ours:
        if ours:
            with transaction.atomic():
                _review(done, moment)
    return done


def _review(done: WasteTally, moment: datetime) -> None:
    rules = list(list_rules())
    findings = list(WasteFinding.objects.filter(closed_at=None).select_related("rule").order_by("pk"))
    if not rules and not findings:
        return
    idle = idle_jobs.load_idle(rules, moment=moment)
    held = idle_jobs.without_excluded(idle, rules)
    ending = set(
        Cluster.objects.filter(kind=ClusterKind.SLURM, may_end_jobs=True).values_list("name", flat=True)
    )
    places = idle_jobs.by_place(held)
    current = {(row.rule_id, row.record_id) for row in findings}
    over = [row for row in findings if not _stands(row, places, ending)]
    if over:
        closed = _close(over, {job.place for job in idle}, moment)
        done.closed += len(closed)
        current -= closed
    by_id = {rule.pk: rule for rule in rules}
    new = _without_ended([job for job in held if job.place not in current])
    _find(new, by_id, ending, moment)
    done.findings += len(new)


def state_of(rule: WasteRule, *, can_end: bool) -> WasteState:
    """What a finding of the rule is. `can_end`: the operator allows it on the cluster, whose single jobs can be ended.

    Watching needs no leave: it shows what a leave would do.
    """
    if rule.action == WasteAction.NOTIFY:
        return WasteState.NOTIFIED
    if rule.watch:
        return WasteState.WATCHED
    return WasteState.ANNOUNCED if can_end else WasteState.NOTIFIED


def due_at(rule: WasteRule, moment: datetime) -> datetime:
    """When its grace is over: a whole hour, since telemetry is stored by whole hours."""
    due = moment + timedelta(minutes=rule.grace_minutes)
    begin = due.replace(minute=0, second=0, microsecond=0)
    return begin if begin == due else begin + HOUR


def _stands(row: WasteFinding, places: Mapping[tuple[int, int], IdleJob], ending: set[str]) -> bool:
    """Whether it is as it was found: without an hour since then in which it worked, or that is not known."""
    job = places.get((row.rule_id, row.record_id))
    return (
        job is not None
        and job.since <= row.idle_since
        and job.tenant == row.tenant_id
        and state_of(row.rule, can_end=row.cluster in ending) == row.state
    )


def _close(rows: Sequence[WasteFinding], met: set[tuple[int, int]], moment: datetime) -> set[tuple[int, int]]:
    """Those that could be closed: of one whose cancel is under way, or not settled, nobody knows how it went."""
    done = acts.load_acts(rows)
    present = idle_jobs.load_present(rows, moment=moment)
    settled = [row for row in rows if not acts.is_open(done[row.pk])]
    ended = [row for row in settled if acts.record_end(row, done[row.pk], moment=moment)]
    notices.tell(ended, "ended", moment=moment)
    for row in settled:
        if row not in ended:
            _record_spared(row, present[row.pk], met, moment)
    return {(row.rule_id, row.record_id) for row in settled}


def _record_spared(row: WasteFinding, present: Present, met: set[tuple[int, int]], moment: datetime) -> None:
    row.closed_at, row.error = moment, ""
    if present.ended is not None:
        row.closed_for, row.ran_until = WasteClosed.OVER, present.ended
    elif present.worked is not None and present.worked >= row.idle_since:
        row.closed_for, row.ran_until = WasteClosed.BUSY, present.worked
    elif (row.rule_id, row.record_id) in met or row.rule.ended_at is not None:
        row.closed_for, row.ran_until = WasteClosed.CHANGED, moment
    else:
        through = present.through or row.idle_since
        row.closed_for, row.ran_until = WasteClosed.UNKNOWN, min(through, moment)
    row.save(update_fields=["closed_at", "closed_for", "ran_until", "error"])


def _without_ended(jobs: Sequence[IdleJob]) -> list[IdleJob]:
    """Without those that a rule has ended after the last hour that is known of them: the next pull learns of it."""
    if not jobs:
        return []
    rows = WasteFinding.objects.filter(record_id__in={job.record for job in jobs}, ended_at__isnull=False)
    ended = dict(rows.order_by("ended_at").values_list("record_id", "ended_at"))
    return [job for job in jobs if (end := ended.get(job.record)) is None or end < job.through]


def _find(
    jobs: Sequence[IdleJob], rules: Mapping[int, WasteRule], ending: set[str], moment: datetime
) -> None:
    costs = idle_jobs.load_hour_costs({job.record for job in jobs})
    new = []
    for job in jobs:
        rule = rules[job.rule]
        state = state_of(rule, can_end=job.cluster in ending)
        due = None if state == WasteState.NOTIFIED else due_at(rule, moment)
        new.append(
            WasteFinding(
                tenant_id=job.tenant,
                rule=rule,
                record_id=job.record,
                job_key=job.key,
                job_id=job.job_id,
                job_name=job.name,
                user=job.user,
                cluster=job.cluster,
                account=job.account,
                gpus=job.gpus,
                share_num=job.share_num,
                share_den=job.share_den,
                gpu_model=job.gpu_model,
                state=state,
                began_at=moment,
                idle_since=job.since,
                limit_at=job.limit_at,
                due_at=due,
                next_at=due + SETTLE if due else None,
                **idle_jobs.hour_cost_columns(costs.get(job.record)),
            )
        )
    WasteFinding.objects.bulk_create(new)
    acting = [row for row in new if not row.rule.watch]
    notices.tell([row for row in acting if row.state == WasteState.ANNOUNCED], "announced", moment=moment)
    notices.tell([row for row in acting if row.state == WasteState.NOTIFIED], "found", moment=moment)
