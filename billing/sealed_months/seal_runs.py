"""What was requested of sealed months: one worker does it, one run after another, and another goes on after it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time

from django.conf import settings
from django.db import transaction

from billing.models import SealedMonth, SealKind, SealRun
from billing.sealed_months import drop, file_checks, folder, readiness, seal, unseal
from billing.sealed_months.errors import SealError
from portal.core.audit import acting_as
from portal.core.locks import Work, alone
from portal.core.outbox import outbox
from portal.sentences import sentence

ATTEMPTS = 5
"""Workers that may die over a month, or others that may read or write it meanwhile, before its run is given up."""
NIGHT = "each night"
HOURS = range(1, 5)  # UTC, in which the night asks for months; what it began may end later


def request_run(
    *, month: date, kind: SealKind, by: str, moment: datetime, all_processes_replaced: bool = False
) -> SealRun:
    """Keep what is to be done with the month. Asked again before that has ended, it is the same run.

    Raises SealError where it cannot be done now, and while the month is in a run of another kind. Of the first drop,
    `all_processes_replaced` is asked here, where a person answers: a run of that kind is its confirmation.
    """
    folder.directory()
    if kind == SealKind.SEAL:
        _refuse_seal(month, moment)
    else:
        row = SealedMonth.objects.filter(month=month).first()
        if row is None:
            raise SealError("not-sealed", month=f"{month:%Y-%m}")
        if kind == SealKind.LOAD and row.dropped_at is None:
            raise SealError("not-dropped", month=f"{row}")
        if kind == SealKind.DROP:
            _refuse_drop(row, all_processes_replaced=all_processes_replaced)
    return _create(month, kind, by, moment)


def _refuse_seal(month: date, moment: datetime) -> None:
    state = readiness.state_of(month, moment=moment, quiet_months=settings.CLUSTERTAB_SEAL_AFTER_MONTHS)
    if state.sealed is not None:
        raise SealError("sealed", month=f"{month:%Y-%m}")
    if not state.may_be_requested:
        raise next(blocker for blocker in state.blockers if blocker.code != readiness.PROVED_FIRST)


def _refuse_drop(row: SealedMonth, *, all_processes_replaced: bool) -> None:
    if row.dropped_at is not None:
        raise SealError("dropped", month=f"{row}")
    if (blocker := drop.why_not_requested(row)) is not None:
        raise blocker
    if drop.is_first() and not all_processes_replaced:
        raise SealError("old-processes")


def request_ready(*, by: str, moment: datetime) -> list[SealRun]:
    """Keep that every month that is ready is to be sealed, the oldest first; asked again, the same runs."""
    folder.directory()
    months = readiness.list_months(moment=moment, quiet_months=settings.CLUSTERTAB_SEAL_AFTER_MONTHS)
    ready = sorted(state.month for state in months if state.is_ready)
    with transaction.atomic():
        return [_create(month, SealKind.SEAL, by, moment) for month in ready]


def request_at_night(*, moment: datetime) -> SealRun | None:
    """Ask for the oldest month that is ready, if it is night, the setting says so and no run is under way.

    So one month is sealed after another, and the day begins with one of them at most. One that was refused is not asked
    for again before the next night.
    """
    if not settings.CLUSTERTAB_SEAL_AT_NIGHT or settings.CLUSTERTAB_SEALED_MONTHS is None:
        return None
    if moment.hour not in HOURS or SealRun.objects.unfinished().exists():
        return None
    midnight = datetime.combine(moment.date(), time(), UTC)
    requested_months = set(
        SealRun.objects.filter(requested_by=NIGHT, requested_at__gte=midnight).values_list("month", flat=True)
    )
    months = readiness.list_months(moment=moment, quiet_months=settings.CLUSTERTAB_SEAL_AFTER_MONTHS)
    month = min(
        (state.month for state in months if state.is_ready and state.month not in requested_months),
        default=None,
    )
    return _create(month, SealKind.SEAL, NIGHT, moment) if month else None


def perform_next(*, clock: Callable[[], datetime]) -> SealRun | None:
    """Do the oldest run that is not done; None where there is none, or another worker is at one.

    Called again after a worker died, it goes on: what it had done to a month is so, and the run ends.
    """
    with alone(Work.SEAL_RUNS) as ours:
        run = SealRun.objects.unfinished().order_by("pk").first() if ours else None
        if run is None:
            return None
        run.started_at, run.attempts = run.started_at or clock(), run.attempts + 1
        with acting_as(run.requested_by):
            run.save()
            try:
                _perform(run, clock())
            except SealError as refusal:
                if refusal.code == "busy":  # somebody else at the shell, for as long as that takes
                    run.attempts -= 1
                    run.save()
                    return run
                if refusal.code in {"written-to", "in-use"} and run.attempts < ATTEMPTS:
                    return run
                run.error = sentence(refusal)
            run.ended_at = clock()
            run.save()
        return run


def _perform(run: SealRun, moment: datetime) -> None:
    if run.attempts > ATTEMPTS:
        raise SealError("given-up", times=ATTEMPTS)
    if run.kind == SealKind.SEAL:
        seal.seal_month(month=run.month, moment=moment, quiet_months=settings.CLUSTERTAB_SEAL_AFTER_MONTHS)
        return
    if run.kind == SealKind.CHECK:
        file_checks.check_month(month=run.month, moment=moment)
        return
    if run.kind == SealKind.DROP:
        drop.drop_month(month=run.month, moment=moment, all_processes_replaced=True)
        return
    if run.kind == SealKind.LOAD:
        drop.load_back(month=run.month)
        return
    try:
        unseal.unseal_month(month=run.month)
    except SealError as refusal:
        if refusal.code != "not-sealed":  # that is what was asked for
            raise


def _create(month: date, kind: SealKind, by: str, moment: datetime) -> SealRun:
    """The run of the month that is under way, or a new one, which a worker is told of once this commits."""
    with transaction.atomic(), acting_as(by):
        run, is_new = SealRun.objects.unfinished().get_or_create(
            month=month, defaults={"kind": kind, "requested_by": by, "requested_at": moment}
        )
        if run.kind != kind:
            raise SealError("in-another-run", month=f"{month:%Y-%m}", person=run.requested_by)
        if is_new:
            outbox.add("billing.sealed_months.tasks.seal_runs_due")
    return run
