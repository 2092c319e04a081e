"""What running a GPU costs the operator, for the margin; tenants see none of it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from clusters.models import Cluster
from portal.core.audit import track


@track()
class OperatingCost(models.Model):
    """What a GPU-hour of capacity costs to run, idle or not, from a UTC day until the next such row begins."""

    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Empty: of every cluster that has none of its own for the model.",
    )
    gpu_model = models.CharField(
        max_length=200, blank=True, help_text="As the scheduler calls it; empty: every model without its own."
    )
    currency = models.CharField(max_length=3)
    amount = models.DecimalField(
        max_digits=24, decimal_places=12, help_text="Per GPU-hour of capacity, in major units."
    )
    valid_from = models.DateField(help_text="In UTC; it holds until the next one begins.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "gpu_model", "currency", "valid_from"],
                nulls_distinct=False,
                name="operating_cost_begins_once_a_day",
            ),
            models.CheckConstraint(condition=Q(amount__gte=0), name="operating_cost_is_not_negative"),
            models.CheckConstraint(
                condition=Q(currency__regex="^[A-Z]{3}$"), name="operating_cost_has_a_currency"
            ),
        ]

    def __str__(self) -> str:
        where = self.cluster.name if self.cluster else "every cluster"
        amount_text = f"{self.amount.normalize():f} {self.currency}"
        return f"{self.gpu_model or 'every model'} in {where} at {amount_text} from {self.valid_from}"
