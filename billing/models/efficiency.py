"""The efficiency of a tenant or cluster with many jobs."""

from __future__ import annotations

from typing import ClassVar

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q

from billing.models.snapshots import Snapshot
from clusters.models import Cluster
from portal.core.tenants.models import Tenant


class EfficiencySnapshot(Snapshot):
    """The efficiency of some days as a worker computed it from the runs, for a page to read: a tenant's or a cluster's.

    Holds GPU-seconds by price and no money: a corrected price shows at once.
    """

    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, blank=True, db_index=False, related_name="+"
    )
    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        db_index=False,
        related_name="+",
        help_text="Whose report operators read. Empty: it is a tenant's.",
    )
    since = models.BigIntegerField(help_text="UTC epoch second.")
    until = models.BigIntegerField(null=True, help_text="UTC epoch second. Empty: the days go on.")
    answers = models.JSONField(
        default=dict,
        encoder=DjangoJSONEncoder,
        help_text="Of each grouping, by its name, the sums and the most expensive jobs; `waste`: the findings; of a "
        "cluster `whole`: its capacity, and what waited for it.",
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(tenant=None, cluster__isnull=False) | Q(tenant__isnull=False, cluster=None),
                name="efficiency_is_of_a_tenant_or_a_cluster",
            ),
            models.UniqueConstraint(
                fields=["tenant", "cluster", "since", "until"],
                nulls_distinct=False,
                name="efficiency_is_kept_once_for_the_same_days",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id or self.cluster_id} from {self.since}"
