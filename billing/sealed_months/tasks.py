"""What workers do for sealed months. Each may run twice, at once, and die anywhere."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog
from celery import shared_task

from billing.models import SealRun

log = structlog.get_logger("billing.sealed_months")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@shared_task
def seal_runs_due(**_: object) -> None:
    """Tell a worker what is to be done with sealed months; a run whose worker died is taken up again so."""
    if SealRun.objects.unfinished().exists():
        perform_seal_run.apply_async(expires=30)


@shared_task
def perform_seal_run(**_: object) -> None:
    """Do the oldest run that is not done; then the next has its turn, behind what came meanwhile."""
    from billing.sealed_months import seal_runs  # 3 MiB that workers of other queues do without

    run = seal_runs.perform_next(clock=_now)
    if run is not None and run.ended_at is not None:
        tell = log.warning if run.error else log.info
        tell("seal run ended", month=f"{run.month:%Y-%m}", kind=run.kind, error=run.error)
        seal_runs_due()


@shared_task
def seal_at_night(**_: object) -> None:
    """Ask for the next month that is ready, where the setting says so; missed or doubled, once."""
    from billing.sealed_months import seal_runs

    run = seal_runs.request_at_night(moment=_now())
    if run is not None:
        log.info("seal run requested", month=f"{run.month:%Y-%m}")


@shared_task
def check_sealed_files(**_: object) -> None:
    """Look at the files of sealed months once a night; missed, doubled or killed, the next call does it."""
    from billing.sealed_months import file_checks

    for damage in file_checks.check_at_night(moment=_now()):
        log.error("sealed file damaged", damage=damage)
