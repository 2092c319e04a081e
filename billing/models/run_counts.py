"""How many runs a tenant with many of them had in two ranges of days."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from billing.models.snapshots import Snapshot
from portal.core.tenants.models import Tenant


class RunCountSnapshot(Snapshot):
    """The runs of each group in two ranges of days as a worker counted them, for *Why did it change?* to read."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    query = models.JSONField(
        help_text="Both ranges, the time zone of their days, the groupings and the filters."
    )
    digest = models.CharField(
        max_length=64, help_text="SHA-256 of `query`, in hex: by it a page looks it up."
    )
    rows = models.JSONField(
        null=True,
        help_text="As the statement answers. Empty: there are more runs than are counted, or some cannot be.",
    )
    uncounted = models.TextField(
        default="", help_text="Months, as text, whose runs stand in files that could not be read."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "digest"], name="runs_are_counted_once_for_the_same_query"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.query}"
