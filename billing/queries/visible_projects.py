"""The projects that a page offers to its reader."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from billing.models import RatedJob, UsageSeries
from portal.core.tenants.models import Project, Tenant


def list_projects(tenant: Tenant) -> QuerySet[Project]:
    """By name; of a member who sees their own usage alone those that their jobs ran, run or wait in."""
    rows = tenant.projects.order_by("name")
    if tenant.only_users is None:
        return rows
    used = UsageSeries.objects.filter(tenant=tenant).values("project")
    unfinished = RatedJob.objects.filter(tenant=tenant, ended=None).values("project")
    return rows.filter(Q(pk__in=used) | Q(pk__in=unfinished))
