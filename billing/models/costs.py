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


@track()
class CostImport(models.Model):
    """What was read of a provider's bill for one cluster, or for one GPU model of it. Read again, it replaces that."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    gpu_model = models.CharField(
        max_length=200, blank=True, help_text="Whose capacity it pays for; empty: the whole cluster's."
    )
    selection = models.TextField(blank=True, help_text="Which rows were taken: Column=Value, one a line.")
    provider = models.CharField(max_length=200)
    billing_account = models.CharField(max_length=200, blank=True)
    billing_period = models.DateField(help_text="Its first day, in UTC.")
    currency = models.CharField(max_length=3)
    amount = models.DecimalField(max_digits=60, decimal_places=30, help_text="Of all its charges.")
    charges = models.IntegerField()
    files = models.TextField(help_text="Names of the files, one a line.")
    imported_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "gpu_model", "selection", "provider", "billing_account", "billing_period"],
                name="bill_of_a_cluster_is_read_once",
            ),
            models.CheckConstraint(
                condition=Q(currency__regex="^[A-Z]{3}$"), name="cost_import_has_a_currency"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider} for {self.cluster.name}, {self.billing_period:%Y-%m}"


class CostCharge(models.Model):
    """One row of a provider's bill: what it cost in [since, until), epoch seconds. Replaced with its import."""

    source = models.ForeignKey(CostImport, on_delete=models.CASCADE, related_name="rows")
    provider = models.CharField(max_length=200)
    billing_period = models.DateField()
    charge = models.CharField(
        max_length=80, help_text="SHA-256 of the row as it was read, and its number among equal ones."
    )
    since = models.BigIntegerField()
    until = models.BigIntegerField()
    amount = models.DecimalField(
        max_digits=60, decimal_places=30, help_text="In major units of the import's currency."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["provider", "billing_period", "charge"], name="charge_of_a_bill_counts_once"
            ),
            models.CheckConstraint(condition=Q(until__gt=models.F("since")), name="charge_has_a_length"),
        ]

    def __str__(self) -> str:
        return f"{self.amount.normalize():f} of {self.provider}"
