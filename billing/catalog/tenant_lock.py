"""A tenant's lock: under it nothing else is rated, drafted, issued or credited for the tenant."""

from __future__ import annotations

from collections.abc import Iterable

from portal.core.tenants.models import Tenant


def lock(tenant: Tenant) -> Tenant:
    """The tenant, locked until the transaction ends: nothing is rated or issued for it meanwhile."""
    return lock_tenants([tenant])[tenant.pk]


def lock_tenants(tenants: Iterable[Tenant]) -> dict[int, Tenant]:
    """As `lock`, by id. In order of id, as every holder of several locks does; KeyError by whoever misses one."""
    ids = [tenant.pk for tenant in tenants]
    rows = Tenant.objects.select_for_update(no_key=True).filter(pk__in=ids)
    return {tenant.pk: tenant for tenant in rows.order_by("pk")}
