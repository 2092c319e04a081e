"""What workers do for reports. Each takes ids, may run twice, at once, and die anywhere."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog
from celery import shared_task

from billing.models import FocusExport

log = structlog.get_logger("billing.reports")


@shared_task
def refresh_cluster_efficiency(*, snapshot_id: int, **_: object) -> None:
    """Compute what *Reports* shows of a large cluster and some days; nothing where that is done already."""
    from billing.reports import efficiency_refresh  # loads what only this worker needs

    efficiency_refresh.refresh(snapshot_id, clock=lambda: datetime.now(UTC))


@shared_task
def count_runs(*, snapshot_id: int, **_: object) -> None:
    """Count the runs that *Why did it change?* shows of a large tenant; nothing where that is done already."""
    from billing.reports import run_count_snapshots

    run_count_snapshots.count(snapshot_id, clock=lambda: datetime.now(UTC))


@shared_task
def forget_efficiency(*, tenant_id: int, **_: object) -> None:
    """Delete what shows names that were erased: also what a worker computed before the erasure was committed."""
    from billing.reports import efficiency_snapshots, run_count_snapshots

    efficiency_snapshots.forget(tenant_id)
    run_count_snapshots.forget(tenant_id)


@shared_task
def forget_old_efficiency(**_: object) -> None:
    """Delete figures that nobody has looked at for long; run again, there are none left."""
    from billing.reports import efficiency_snapshots, run_count_snapshots

    efficiency_snapshots.forget_old(moment=datetime.now(UTC))
    run_count_snapshots.forget_old(moment=datetime.now(UTC))


@shared_task
def focus_exports_due(**_: object) -> None:
    """Tell a worker which files of charges are to be written; one whose worker died is written again so."""
    if FocusExport.objects.unfinished().exists():
        perform_focus_export.apply_async()  # however long it waits: what comes twice finds nothing to do


@shared_task
def perform_focus_export(**_: object) -> None:
    """Write the file that was requested first; then the next has its turn, behind what came meanwhile."""
    from billing.reports import focus_exports

    export = focus_exports.perform_next(clock=lambda: datetime.now(UTC))
    if export is not None:
        if export.error:
            log.warning("focus export failed", month=f"{export.month:%Y-%m}", error=export.error)
        focus_exports_due()


@shared_task
def forget_old_focus_exports(**_: object) -> None:
    """Delete files that are old, or were written again; run again, there are none left."""
    from billing.reports import focus_exports

    focus_exports.forget_old(moment=datetime.now(UTC))


@shared_task
def forget_names_in_focus_exports(*, erasure: str, begun_at: str, **_: object) -> None:
    """Delete what shows names that this transaction erased; run again, there is none."""
    from billing.reports import focus_exports

    focus_exports.forget_names(erasure=erasure, begun_at=datetime.fromisoformat(begun_at))
