"""What the page *Efficiency* shows of a tenant with many jobs."""

from __future__ import annotations

from typing import ClassVar

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

from portal.core.tenants.models import Tenant


class EfficiencySnapshot(models.Model):
    """The efficiency of some of a tenant's days as a worker computed it from the runs, for a page to read.

    Holds GPU-seconds by price and no money: a corrected price shows at once. Written anew as a whole, and deleted when
    nobody has looked at it for long.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    since = models.BigIntegerField(help_text="UTC epoch second.")
    until = models.BigIntegerField(null=True, help_text="UTC epoch second. Empty: the days go on.")
    requested_at = models.DateTimeField(null=True, help_text="Since when a worker is to compute it.")
    as_of = models.DateTimeField(null=True, help_text="When it was computed. Empty: it has not been yet.")
    seconds = models.IntegerField(default=0, help_text="How long that took, rounded up.")
    answers = models.JSONField(
        default=dict,
        encoder=DjangoJSONEncoder,
        help_text="Of each grouping, by its name, the sums and the most expensive jobs; `waste`: the findings.",
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "since", "until"],
                nulls_distinct=False,
                name="efficiency_is_kept_once_for_the_same_days",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} from {self.since}"
