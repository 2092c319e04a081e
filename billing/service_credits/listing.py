"""What pages and commands list: credits with their evidence, and the errors of GPUs behind them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from billing.models import ServiceCredit
from clusters.models import GpuError, GpuErrorReading
from portal.core.tenants.models import Tenant

SPAN = timedelta(days=30)
"""How far back pages look."""
LISTED = 100


def list_credits(
    *, since: datetime, tenant: Tenant | None = None, limit: int = LISTED
) -> Sequence[ServiceCredit]:
    """Those that were met since then, the newest first, with tenant and rule. One query."""
    rows = ServiceCredit.objects.filter(began_at__gte=since)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    return list(rows.select_related("tenant", "failure_rule").order_by("-began_at", "-pk")[:limit])


def list_gpu_errors(*, since: datetime, limit: int = LISTED) -> Sequence[GpuError]:
    """Of all kinds and clusters, the newest first. One query."""
    rows = GpuError.objects.filter(at__gte=since).select_related("cluster")
    return list(rows.order_by("-at", "-pk")[:limit])


def list_troubles() -> Sequence[GpuErrorReading]:
    """Clusters whose errors could not be read, or of which there is something to know. One query."""
    rows = GpuErrorReading.objects.exclude(last_error="", notes="").select_related("cluster")
    return list(rows.order_by("cluster__name"))


def of_run(tenant: Tenant, record: int) -> Sequence[ServiceCredit]:
    """What a tenant sees of one of its jobs: without what is only watched. One query."""
    rows = ServiceCredit.objects.filter(tenant=tenant, record_id=record).exclude(state="watched")
    return list(rows.order_by("pk"))
