"""Past months whose records are proved again in turn, one a night: a row changed behind the program's back is found."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from billing.models import MonthProof
from billing.proof import checks
from billing.proof.names import named
from clusters import usage

NEVER = datetime.min.replace(tzinfo=UTC)

SYNC = timedelta(days=1)
"""Longer than a sync takes: what it writes says when it began."""


def prove_next(*, moment: datetime) -> MonthProof | None:
    """Prove the past month whose proof is the oldest; None where one was proved since midnight UTC, or there is none.

    While usage waits to be rated again no sum need close. Killed, it has stored nothing, and the next call does it.
    """
    if checks.changes_to_rate():
        return None
    computed = dict(MonthProof.objects.values_list("month", "computed_at"))
    if any(computed_at.date() == moment.date() for computed_at in computed.values()):
        return None
    months = usage.months(proved=computed)
    past = [month for month in months if (month.year, month.month) < (moment.year, moment.month)]
    if not past:
        return None
    return prove_month(min(past, key=lambda month: (computed.get(month, NEVER), month)), moment=moment)


def prove_month(month: date, *, moment: datetime) -> MonthProof:
    """Recompute the whole runs of the month's records, and compare with what its last proof had."""
    within = usage.months(proved=[month])[month]
    with checks.snapshot() as cursor:
        before = MonthProof.objects.filter(month=month).first()
        census = usage.census(within, through=before.last_id if before else 0)
        sums, jobs, _ = checks.sums_of_jobs(cursor, within=within)
        allocated = {
            f"{cluster} {resource}": checks.seconds_text(row.parts["allocated"])
            for (cluster, resource), row in sorted(sums.items())
        }
        broken = [
            f"{cluster}, {resource}: {checks.seconds_text(row.difference)} s allocated are in no other sum"
            for (cluster, resource), row in sorted(sums.items())
            if row.difference
        ]
        broken += named(jobs[:10])
        lost = _lost(before, census, allocated) if before else []
    values = {"computed_at": moment, "broken": broken + lost}
    if not lost:  # else the next proof compares with the same, until the rows are as they were
        values |= {"records": census.records, "last_id": census.last_id or 0, "allocated": allocated}
    return MonthProof.objects.update_or_create(month=month, defaults=values)[0]


def _lost(before: MonthProof, census: usage.Census, allocated: Mapping[str, str]) -> list[str]:
    """What no sync can have done since the last proof: records are never deleted, and a change says when it was."""
    if census.through < before.records:
        return [f"{before.records - census.through:,} of {before.records:,} usage records are gone"]
    unchanged = census.last_id == before.last_id and (census.last_seen or NEVER) < before.computed_at - SYNC
    if not unchanged:
        return []
    return [
        f"{key}: {was} s were allocated, now {now} s, and no sync wrote that"
        for key in sorted({*before.allocated, *allocated})
        if (was := before.allocated.get(key, "0")) != (now := allocated.get(key, "0"))
    ]


def as_data() -> list[dict[str, object]]:
    """Each past month's last proof, for programs: the newest month first."""
    return [
        {
            "month": f"{proof.month:%Y-%m}",
            "computed_at": proof.computed_at.isoformat(),
            "records": proof.records,
            "holds": not proof.broken,
            "broken": proof.broken,
        }
        for proof in MonthProof.objects.order_by("-month")
    ]
