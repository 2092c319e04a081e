"""Rated usage and the bounded totals that pages and invoices read.

Quantities are whole `units`: resource units × seconds, each unit being share_num/share_den of what
the meter counts (a GPU, a core, a GiB). Nothing divided is stored, so sums never drift.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Q

from portal.tenants.models import Project, Tenant


class Resource(models.TextChoices):
    """What a workload holds; `units` are whole GPUs or slices, thousandths of a core, MiB, Slurm's weight."""

    GPU = "gpu", "GPU"
    CPU = "cpu", "CPU"
    MEMORY = "memory", "Memory"
    GPU_MEMORY = "gpu-memory", "GPU memory"
    BILLING = "billing", "Slurm billing"

    @property
    def is_measure(self) -> bool:
        """Whether it counts over again what the others hold: rated only for tenants one of whose plans charges it."""
        return self in MEASURES


MEASURES = (Resource.GPU_MEMORY, Resource.BILLING)


class Verdict(models.TextChoices):
    """What became of owned usage. Unpriced usage blocks its tenant's close; it never becomes 0."""

    CHARGED = "charged", "Charged"
    WAIVED = "waived", "Waived: not charged by this plan"
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

    Partitioned by service month; without foreign keys, so that months can be detached.
    """

    id = models.BigIntegerField(primary_key=True)
    service_month = models.DateField(help_text="Partition key: first day of the UTC month of service_from.")
    tenant_id = models.BigIntegerField()
    record_id = models.BigIntegerField()
    revision = models.IntegerField()
    generation = models.IntegerField(help_text="How often this record has been rated differently.")
    reversal = models.BooleanField(help_text="Takes back an earlier row.")
    resource = models.TextField(choices=Resource.choices)
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


class RatedJob(models.Model):
    """What a tenant may see of a job: its description and what its rated usage adds up to."""

    # The record first: rating looks up jobs by it, whoever their tenants are.
    pk = models.CompositePrimaryKey("record_id", "tenant_id")
    # Rating holds both rows, and they refuse to go while a job is theirs: checked there, not per job.
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    record_id = models.BigIntegerField()
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    cluster = models.TextField()
    account = models.TextField()
    job_id = models.TextField()
    name = models.TextField()
    user = models.TextField()
    queue = models.TextField()
    qos = models.TextField()
    gpu_model = models.TextField()
    mig_profile = models.TextField()
    gpus = models.IntegerField()
    share_num = models.IntegerField()
    share_den = models.IntegerField()
    cpu_milli = models.BigIntegerField()
    memory_mib = models.BigIntegerField()
    gpu_memory_mib = models.BigIntegerField(db_default=0)
    billing = models.BigIntegerField(db_default=0)
    nodes = models.IntegerField()
    state = models.TextField()
    submitted = models.BigIntegerField(null=True)
    started = models.BigIntegerField(null=True)
    ended = models.BigIntegerField(null=True)
    seen_until = models.BigIntegerField(null=True)
    shown_at = models.BigIntegerField(
        help_text="Start, or submission while it waits: lists are ordered by it."
    )
    gpu_units = models.BigIntegerField(help_text="GPU units × seconds rated to this tenant.")
    cost_rank = models.DecimalField(
        max_digits=30, decimal_places=6, help_text="Cost, rounded: only to sort by, never shown as money."
    )
    unpriced = models.BooleanField()

    class Meta:
        indexes: ClassVar = [
            # What the costliest jobs of a period are sorted by lies in the index: a large tenant has
            # a hundred thousand of them, of which eight are read.
            models.Index(
                fields=["tenant", "-shown_at", "-record_id"],
                include=["ended", "cost_rank", "gpu_units"],
                name="jobs_of_tenant_newest_first",
            ),
            # The few that run or wait, found without reading all that ever ended.
            models.Index(
                fields=["tenant", "-shown_at", "-record_id"],
                condition=Q(ended__isnull=True),
                name="open_jobs_of_tenant",
            ),
            # Those of all tenants that ended lately, which monitoring asks for each minute. Rows come about in the
            # order of their ends, so that a few kilobytes lead to them.
            BrinIndex(fields=["ended"], pages_per_range=32, name="jobs_by_end"),
        ]

    def __str__(self) -> str:
        return self.job_id


class Total(models.Model):
    """A sum of rated usage in units × share_num, kept apart by share_den so that it stays whole."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    resource = models.CharField(max_length=10, choices=Resource.choices)
    share_den = models.IntegerField()
    units = models.DecimalField(max_digits=30, decimal_places=0, help_text="Σ units × share_num")
    amount = models.DecimalField(
        max_digits=50,
        decimal_places=12,
        help_text="Σ units × share_num × unit price; divide by share_den and 3600.",
    )

    class Meta:
        abstract = True


class PeriodTotal(Total):
    """What a tenant used in a billing period, per project and price: the lines of its statement."""

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, db_index=False, related_name="totals")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_index=False, related_name="+")
    gpu_model = models.TextField()
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
        help_text="Newest rated row in this sum; beyond an invoice's: pending."
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


class DayTotal(Total):
    """What a tenant used and was charged on a day of its own zone."""

    day = models.DateField()
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_index=False, related_name="+")
    gpu_model = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "day", "project", "gpu_model", "resource", "share_den"],
                name="day_total_is_kept_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.resource} {self.units}"


class UserTotal(Total):
    """What a person used and was charged in a billing period."""

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, db_index=False, related_name="+")
    user = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "period", "user", "resource", "share_den"], name="user_total_is_kept_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.resource} {self.units}"
