"""What workers do for reports. Each takes ids, may run twice, at once, and die anywhere."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import shared_task


@shared_task
def refresh_cluster_efficiency(*, snapshot_id: int, **_: object) -> None:
    """Compute what *Reports* shows of a large cluster and some days; nothing where that is done already."""
    from billing.reports import efficiency_refresh  # loads what only this worker needs

    efficiency_refresh.refresh(snapshot_id, clock=lambda: datetime.now(UTC))


@shared_task
def forget_efficiency(*, tenant_id: int, **_: object) -> None:
    """Delete what shows names that were erased: also what a worker computed before the erasure was committed."""
    from billing.reports import efficiency_snapshots

    efficiency_snapshots.forget(tenant_id)


@shared_task
def forget_old_efficiency(**_: object) -> None:
    """Delete figures that nobody has looked at for long; run again, there are none left."""
    from billing.reports import efficiency_snapshots

    efficiency_snapshots.forget_old(moment=datetime.now(UTC))
