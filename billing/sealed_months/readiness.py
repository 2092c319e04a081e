"""Which months may be sealed, and what stands in the way of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.db import connection

from billing.models import BillingPeriod, CloseProof, MonthProof, ProofMark, SealedMonth
from billing.proof import checks
from billing.sealed_months.errors import SealError
from clusters import usage
from portal.sql_files import Statements

sql = Statements(__file__, "readiness.sql")

PROVED_FIRST = "not-proved"
"""Of what stands in the way of a month, that which sealing itself may clear: it begins with a proof."""


@dataclass(frozen=True, slots=True)
class MonthState:
    """A UTC month with usage records: sealed, ready to be sealed, or neither for the reasons of `blockers`."""

    month: date
    within: tuple[int, int]  # numbers (after, last] of its records
    changed_at: datetime  # the last change before it was sealed, or before now
    sealed: SealedMonth | None = None
    changed: bool = False  # since it was sealed
    blockers: Sequence[SealError] = ()

    @property
    def is_ready(self) -> bool:
        return self.sealed is None and not self.blockers

    @property
    def may_be_requested(self) -> bool:
        """Whether it may be sealed, as far as is known before sealing begins with a proof."""
        return self.sealed is None and all(blocker.code == PROVED_FIRST for blocker in self.blockers)

    @property
    def name(self) -> str:
        """One of damaged, dropped (its rows are only in files), changed (since it was sealed), sealed, ready, unproved
        (sealing proves it first), blocked.
        """
        if (row := self.sealed) is not None:
            if row.damages:
                return "damaged"
            return "dropped" if row.dropped_at else "changed" if self.changed else "sealed"
        if self.is_ready:
            return "ready"
        return "unproved" if self.may_be_requested else "blocked"


def list_months(*, moment: datetime, quiet_months: int, only: date | None = None) -> list[MonthState]:
    """Every month that has records, the newest first, or `only` that one.

    `quiet_months`: so long nothing of a month may have changed.
    """
    sealed = {row.month: row for row in SealedMonth.objects.prefetch_related("files")}
    proofs = {proof.month: proof for proof in MonthProof.objects.all()}
    marked = set(ProofMark.objects.values_list("month", flat=True).distinct())
    recorded = [month for month, proof in proofs.items() if proof.records]
    months = [
        (month, within)
        for month, within in sorted(usage.months(proved=recorded).items(), reverse=True)
        if only in (None, month)
    ]
    changed = changed_months([(sealed[month], within) for month, within in months if month in sealed])
    blockers = _load_blockers(
        [(month, within) for month, within in months if month not in sealed],
        moment=moment,
        quiet_months=quiet_months,
    )
    states = []
    for month, within in months:
        if (row := sealed.get(month)) is not None:
            states.append(MonthState(month, within, row.changed_at, row, month in changed))
            continue
        changed_at, reasons = blockers[month]
        proof = proofs.get(month)
        if month in marked or proof is None or proof.broken or not proof.terms:
            reasons.append(SealError(PROVED_FIRST))
        states.append(MonthState(month, within, changed_at, blockers=reasons))
    return states


def state_of(month: date, *, moment: datetime, quiet_months: int) -> MonthState:
    """Raises SealError where the month has no records."""
    states = list_months(moment=moment, quiet_months=quiet_months, only=month)
    if not states:
        raise SealError("no-records", month=f"{month:%Y-%m}")
    return states[0]


Numbered = Sequence[tuple[date, tuple[int, int]]]
"""Months, and the numbers (after, last] of their records."""


def _load_blockers(
    months: Numbered, *, moment: datetime, quiet_months: int
) -> dict[date, tuple[datetime, list[SealError]]]:
    """By month when it was changed last, and what stands in its way."""
    if not months:
        return {}
    values: dict[str, list[Any]] = {
        "months": [month for month, _ in months],
        "afters": [after for _, (after, _) in months],
        "lasts": [last for _, (_, last) in months],
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.STATES, values)
        rows = cursor.fetchall()
    return {
        month: (state[-1], _blockers(month, *state, moment=moment, quiet_months=quiet_months))
        for month, *state in rows
    }


def _blockers(
    month: date,
    detached: str | None,
    dropped: str | None,
    late: str | None,
    open_jobs: int,
    open_periods: int,
    pending: int,
    changed_at: datetime,
    *,
    moment: datetime,
    quiet_months: int,
) -> list[SealError]:
    blockers = []
    is_over = (moment.year, moment.month) > (month.year, month.month)
    if not is_over:
        blockers.append(SealError("not-over"))
    if detached:
        blockers.append(SealError("detached", months=detached))
    if dropped:
        blockers.append(SealError("jobs-dropped", months=dropped))
    if late:
        blockers.append(SealError("late-records", months=late))
    if open_jobs:
        blockers.append(SealError("open-jobs", count=open_jobs))
    if open_periods:
        blockers.append(SealError("open-periods", count=open_periods))
    if pending:
        blockers.append(SealError("pending"))
    if is_over and _months_since(changed_at, moment) < quiet_months:  # else its last change is yet to come
        blockers.append(SealError("changed-lately", day=changed_at, months=quiet_months))
    return blockers


def _months_since(then: datetime, now: datetime) -> int:
    """Whole months between."""
    months = (now.year - then.year) * 12 + now.month - then.month
    return months - ((now.day, now.time()) < (then.day, then.time()))


def changed_months(rows: Sequence[tuple[SealedMonth, tuple[int, int]]]) -> set[date]:
    """Of sealed months, each with the numbers of its records, those of which anything is other than it was."""
    if not rows:
        return set()
    values: dict[str, list[Any]] = {
        "months": [row.month for row, _ in rows],
        "afters": [after for _, (after, _) in rows],
        "lasts": [last for _, (_, last) in rows],
        "moments": [row.changed_at for row, _ in rows],
        **{kind: [_count(row, kind) for row, _ in rows] for kind in ("records", "rated")},
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.CHANGED, values)
        return {month for (month,) in cursor.fetchall()}


def _count(row: SealedMonth, kind: str) -> int:
    """Rows of this kind in the month's files."""
    return sum(file.rows for file in row.files.all() if file.kind == kind)


def differing_close(month: date) -> BillingPeriod | None:
    """A billing period with service in the month whose sums are not those that its close proved; None is right.

    Where usage was rated after the close, documents of their own correct it, which `prove` compares.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql.UNCHANGED_PERIODS, {"month": month})
        keys = [key for (key,) in cursor.fetchall()]
    periods = list(BillingPeriod.objects.filter(pk__in=keys).select_related("tenant").order_by("pk"))
    sums = checks.tenant_sums(periods)
    proved = {
        proof.period_id: proof.sums for proof in CloseProof.objects.filter(period__in=keys).order_by("pk")
    }
    return next((one for one in periods if one.pk in proved and sums[one.pk] != proved[one.pk]), None)
