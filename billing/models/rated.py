"""Rated usage and the bounded totals that pages and invoices read.

Quantities are whole `units`: resource units × seconds, each unit being share_num/share_den of what
the meter counts (a GPU, a core, a GiB). Nothing divided is stored, so sums never drift.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q, Sum
from django.db.models.functions import Coalesce

from portal.core.tenants.models import Project, Tenant

AMOUNT = models.DecimalField(max_digits=50, decimal_places=12)

COST = Coalesce(Sum(F("units") * F("price__unit_price"), output_field=AMOUNT), 0, output_field=AMOUNT)
"""Σ units × unit price, of totals that name their price: divide by share_den and 3600."""


class Resource(models.TextChoices):
    """What a workload holds; `units` are whole GPUs or slices, thousandths of a core, MiB, Slurm's weight."""

    GPU = "gpu", "GPU"
    CPU = "cpu", "CPU"
    MEMORY = "memory", "Memory"
    GPU_MEMORY = "gpu-memory", "GPU memory"
    BILLING = "billing", "Slurm billing"

    @property
    def is_measure(self) -> bool:
        """Whether it counts over again what the others hold: without a plan no price of it is asked for."""
        return self in MEASURES


MEASURES = (Resource.GPU_MEMORY, Resource.BILLING)


class Verdict(models.TextChoices):
    """What became of owned usage. Unpriced usage blocks its tenant's close; it never becomes 0."""

    CHARGED = "charged", "Charged"
    WAIVED = "waived", "Waived: not charged by this plan"  # of GPUs; of others no row is kept
    UNPRICED = "unpriced", "Unpriced: no price covers it"


class BillingPeriod(models.Model):
    """A tenant's billing period [start, end), computed once from its zone and anchor day, then kept."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="periods")
    start = models.DateTimeField()
    end = models.DateTimeField()
    timezone = models.CharField(
        max_length=64, help_text="The zone that it was computed in; its days are cut by it."
    )
    whole_seconds = models.BigIntegerField(
        null=True,
        help_text="Of the whole period of which a changed anchor day left this; what is said per period is owed in "
        "proportion. Empty: it is whole.",
    )
    closed_at = models.DateTimeField(null=True, help_text="When its close found everything billed.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "start"], name="period_starts_once_per_tenant"),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="period_ends_after_it_starts"),
            models.CheckConstraint(
                condition=Q(whole_seconds=None) | Q(whole_seconds__gt=0), name="period_is_part_of_something"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} {self.start:%Y-%m-%d}"


class RatedUsage(models.Model):
    """One cut of one revision with its owner, terms and price. Append-only; a change is a negation and a new row.

    Only the last cut of a run that goes on grows in its place, as the newest row, until a document covers it.
    Partitioned by service month; without foreign keys, so that months can be detached.
    """

    id = models.BigIntegerField(primary_key=True)
    service_month = models.DateField(help_text="Partition key: first day of the UTC month of service_from.")
    tenant_id = models.BigIntegerField()
    record_id = models.BigIntegerField()
    revision = models.IntegerField()
    generation = models.IntegerField(help_text="How often this record has been rated differently.")
    reversal = models.BooleanField(help_text="Takes back an earlier row.")
    resource = models.TextField(help_text="Of `Resource`, or a declared meter.")
    verdict = models.TextField(choices=Verdict.choices)
    project_id = models.BigIntegerField()
    period_id = models.BigIntegerField()
    version_id = models.BigIntegerField(null=True)
    price_id = models.BigIntegerField(null=True)
    payer_id = models.BigIntegerField(null=True, help_text="Who paid for the tenant then; empty: itself.")
    service_from = models.BigIntegerField(help_text="UTC epoch second.")
    service_to = models.BigIntegerField()
    units = models.BigIntegerField(help_text="Signed resource units × seconds.")
    share_num = models.IntegerField()
    share_den = models.IntegerField()

    class Meta:
        managed = False
        db_table = "billing_ratedusage"

    def __str__(self) -> str:
        return f"{self.record_id} {self.resource} {self.units}"


class Total(models.Model):
    """A sum of rated usage in units × share_num, kept apart by share_den so that it stays whole."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    resource = models.CharField(max_length=40)
    share_den = models.IntegerField()
    units = models.DecimalField(max_digits=30, decimal_places=0, help_text="Σ units × share_num")

    class Meta:
        abstract = True


class PeriodTotal(Total):
    """What a tenant used in a billing period, per project and price: the lines of its statement."""

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, db_index=False, related_name="totals")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_index=False, related_name="+")
    gpu_model = models.TextField(help_text="Of a declared meter the dimensions of its sums.")
    verdict = models.CharField(max_length=10, choices=Verdict.choices)
    price_id = models.BigIntegerField(null=True)
    payer = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        db_index=False,
        related_name="+",
        help_text="Whose invoice it goes on; empty: the tenant's own.",
    )
    last_rated_id = models.BigIntegerField(
        help_text="Newest rated row in this sum, or newest correction of its price; beyond an invoice's: pending."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=[
                    "tenant",
                    "period",
                    "project",
                    "gpu_model",
                    "resource",
                    "verdict",
                    "price_id",
                    "share_den",
                    "payer",
                ],
                nulls_distinct=False,
                name="period_total_is_kept_once",
            )
        ]
        indexes: ClassVar = [
            # Few tenants have others pay for them.
            models.Index(
                fields=["payer", "tenant"], condition=Q(payer__isnull=False), name="totals_that_others_pay"
            )
        ]

    def __str__(self) -> str:
        return f"{self.period}: {self.resource} {self.units}"


class DayTotalQuerySet(models.QuerySet["DayTotal"]):
    """Totals of days, and what they cost."""

    def costs(self, *by: str) -> models.QuerySet[DayTotal, tuple[Any, ...]]:
        """Rows of (*by, share_den, Σ units × unit price): divide by share_den and 3600."""
        rows = self.values_list(*by, "share_den").annotate(cost=COST)
        return rows.order_by(*by, "share_den")


class DayTotal(models.Model):
    """What a tenant used on a day of its own zone, by price: few rows, which pages read for months at a time."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    day = models.DateField()
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_index=False, related_name="+")
    gpu_model = models.TextField()
    resource = models.CharField(max_length=40)
    price = models.ForeignKey(
        "billing.Price",
        on_delete=models.DO_NOTHING,
        null=True,
        db_index=False,
        db_constraint=False,
        related_name="+",
        help_text="Empty: it is not charged.",
    )
    share_den = models.IntegerField()
    units = models.DecimalField(max_digits=30, decimal_places=0, help_text="Σ units × share_num")

    objects: ClassVar = DayTotalQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "day", "project", "gpu_model", "resource", "price", "share_den"],
                nulls_distinct=False,
                name="day_total_is_kept_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.resource} {self.units}"


class UsageSeries(models.Model):
    """All that usage of a tenant can be grouped by, once: days name it by its number.

    Rows stay when their usage is taken back. The user is renamed here when people are erased.
    """

    id = models.AutoField(primary_key=True)
    # Rating holds both rows, and a project with usage refuses to go: checked there, not per series.
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    resource = models.CharField(max_length=40)
    price = models.ForeignKey(
        "billing.Price",
        on_delete=models.DO_NOTHING,
        null=True,
        db_index=False,
        db_constraint=False,
        related_name="+",
        help_text="Empty: it is not charged.",
    )
    share_den = models.IntegerField()
    user = models.TextField()
    account = models.TextField()
    cluster = models.TextField()
    gpu_model = models.TextField(help_text="Of a declared meter the dimensions of its sums.")
    queue = models.TextField()
    qos = models.TextField()
    state = models.TextField(help_text="As the job has it now.")
    digest = models.BinaryField(help_text="Of all the columns but the tenant: `series_digest`.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "digest"], name="usage_series_is_kept_once")
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "user"], name="usage_series_of_user")]

    def __str__(self) -> str:
        return f"{self.resource} of {self.user} in {self.account}"


class DailyUsage(models.Model):
    """What a tenant used on a day of its own zone, by everything that it can be grouped by.

    GPU usage of any verdict, and of other resources what is charged. Costs follow from the price of the series.
    """

    pk = models.CompositePrimaryKey("tenant_id", "day", "series_id")
    tenant = models.ForeignKey(  # its series has the same
        Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    day = models.DateField()
    series = models.ForeignKey(  # looked up by the statement that writes it, and never deleted
        UsageSeries, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    units = models.BigIntegerField(help_text="Σ units × share_num")

    def __str__(self) -> str:
        return f"{self.day}: {self.units}"
