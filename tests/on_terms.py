"""A tenant on a plan with terms beside its prices, what it used, and what it was billed."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from billing.models import PlanVersion
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_tenant, ingest
from tests.stories import invoice_of, lines_of

MARCH = date(2026, 3, 1)


def a_lab(version: PlanVersion, *accounts: str, since: date = MARCH) -> tuple[Cluster, Tenant]:
    """A cluster that is read through May, and a tenant that is on the plan from that day on."""
    cluster = a_cluster(complete_through="2026-06-01")
    names = accounts or ("vision",)
    return cluster, a_tenant(plan=version.plan, plan_from=since, accounts=[(cluster, name) for name in names])


def used(
    cluster: Cluster, hours: int, account: str = "vision", day: str = "2026-03-20", **fields: str
) -> None:
    """So many GPUs for an hour."""
    ingest(
        cluster, a_job(account=account, gpus=hours, started=f"{day} 10:00", ended=f"{day} 11:00", **fields)
    )


def billed(tenant: Tenant, month: str) -> list[tuple[str, str, str]]:
    """Each line of the month's invoice as (service month, description, amount)."""
    return [
        (f"{line.service_period.start:%Y-%m}", line.description, f"{Decimal(line.amount) / 100:.2f}")
        for line in lines_of(invoice_of(tenant, month))
    ]
