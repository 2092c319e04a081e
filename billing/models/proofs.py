"""What was proved: when a period was closed, and of each month when it was last recomputed."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import QuerySet

from billing.models.rated import BillingPeriod, Total, Verdict
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class CloseProof(models.Model):
    """The conservation sums as they stood when a tenant's period was closed."""

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="proofs")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    closed_at = models.DateTimeField()
    accepted_incomplete = models.TextField(
        blank=True, help_text="The operator's reason, where there was one."
    )
    sums = models.JSONField()

    def __str__(self) -> str:
        return f"close of {self.period}"


class MonthProof(models.Model):
    """How a UTC month was proved the last time: its records by their numbers, and its billing periods.

    It stands until something is written that it was computed from: then there is a `ProofMark` of the month, or the
    digest of `terms` is another one.
    """

    month = models.DateField(unique=True, help_text="Its first day: the month that the records' numbers say.")
    computed_at = models.DateTimeField()
    night = models.DateField(null=True, help_text="UTC day on which its turn of the nights came last.")
    records = models.BigIntegerField()
    last_id = models.BigIntegerField(help_text="The newest of these records.")
    first_second = models.BigIntegerField(
        null=True, help_text="UTC epoch second in which the first of its runs began."
    )
    last_second = models.BigIntegerField(null=True, help_text="The end of what its runs held so far.")
    accounts = ArrayField(
        models.BigIntegerField(), help_text="The numbers of the accounts that it has records of."
    )
    held = models.JSONField(
        help_text="What its records held, in resource-seconds by service month, cluster, resource and part of the sum."
    )
    terms = models.CharField(
        max_length=100,
        help_text="Digest of the owners and plans that it was computed with. Empty: it does not stand.",
    )
    broken = models.JSONField(
        help_text="Where a sum does not close, or rows were changed or deleted otherwise."
    )

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"


class MonthSum(Total):
    """What is rated of the records of a UTC month: a partial sum of all time, kept with the month's proof.

    `tenant` is whose usage it is. The numbers of its rows say what documents and wallets cover; it is apart for rows
    that were covered when it was computed.
    """

    month = models.DateField(help_text="That of `MonthProof`.")
    service_month = models.DateField()
    cluster_id = models.BigIntegerField(null=True, help_text="Empty: no such record is known.")
    period_id = models.BigIntegerField()
    project_id = models.BigIntegerField()
    price_id = models.BigIntegerField(null=True)
    payer_id = models.BigIntegerField(null=True)
    verdict = models.CharField(max_length=10, choices=Verdict.choices)
    oldest = models.BigIntegerField(help_text="The first of its rated rows.")
    newest = models.BigIntegerField()
    rows = models.BigIntegerField()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["month"], name="month_sums_of_month"),
            models.Index(fields=["tenant", "period_id", "month"], name="month_sums_of_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}: {self.resource} {self.units}"


class ProofMark(models.Model):
    """That something was written from which the proof of a UTC month is computed. By triggers alone.

    Each transaction adds its own, so that none waits for another. A proof deletes those that it saw.
    """

    month = models.DateField()

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"


class LateRecord(models.Model):
    """A usage record that stands in its table though its month is dropped: it came back for a late fact, or is new.

    By a trigger of that table alone, so that a proof finds one that is gone. Until the month is loaded back.
    """

    record_id = models.BigIntegerField(primary_key=True, help_text="Its number, which says its month.")
    cluster_id = models.BigIntegerField()
    source_key = models.TextField()

    def __str__(self) -> str:
        return self.source_key


class SealedMonthQuerySet(QuerySet["SealedMonth"]):
    """Sealed months by where their rows are."""

    def dropped(self) -> SealedMonthQuerySet:
        """Those whose rows stand in files alone."""
        return self.filter(dropped_at__isnull=False)


@track(exclude=["checked_at", "night"])
class SealedMonth(models.Model):
    """A UTC month whose rows stand in files that were proved equal to the ledger: those of `SealedFile`.

    Records and jobs are those whose numbers are of the month, rated usage that of service in it, superseded revisions
    those that were superseded in it: what the partitions of the month hold.
    """

    month = models.DateField(unique=True, help_text="Its first day.")
    sealed_at = models.DateTimeField()
    changed_at = models.DateTimeField(help_text="The last change of anything of the month before that.")
    checked_at = models.DateTimeField(
        null=True, help_text="When the digests of its files were compared last."
    )
    night = models.DateField(
        null=True, blank=True, help_text="The last one in which it was this month's turn."
    )
    damages = ArrayField(
        models.TextField(), default=list, help_text="Files that are not as they were sealed, up to ten."
    )
    dropped_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Since then its records, jobs and rated usage stand in its files alone.",
    )
    terms = models.CharField(
        max_length=32, blank=True, default="", db_default="",
        help_text="A digest of the terms its usage was rated on, as it was dropped.",
    )  # fmt: skip
    unrated_periods = ArrayField(
        models.BigIntegerField(), null=True, blank=True,
        help_text="Billing periods in which its jobs ran without rated usage, as it was dropped.",
    )  # fmt: skip

    objects = SealedMonthQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"


@track()
class SealedFile(models.Model):
    """One file of a sealed month, of one kind of rows, and of one tenant where its rows are a tenant's."""

    month = models.ForeignKey(SealedMonth, on_delete=models.CASCADE, related_name="files")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, db_index=False, related_name="+",
        help_text="Empty: its rows are no tenant's, as usage records.",
    )  # fmt: skip
    kind = models.CharField(max_length=10, help_text="records, revisions, jobs, rated or names.")
    bytes = models.BigIntegerField()
    rows = models.BigIntegerField()
    sha256 = models.CharField(max_length=64, help_text="Of the file.")
    rows_sha256 = models.CharField(
        max_length=64, help_text="Of its rows as CSV, as PostgreSQL copied them and DuckDB read them back."
    )
    sums = models.JSONField(
        help_text="Of rated usage, resource, verdict and exact resource-seconds; of other rows nothing."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "month", "kind"], nulls_distinct=False, name="sealed_file_is_kept_once"
            )
        ]

    def __str__(self) -> str:
        return self.path

    @property
    def path(self) -> str:
        """Below the directory of sealed months."""
        folder = f"{self.month}" if self.tenant_id is None else f"{self.month}/tenant-{self.tenant_id}"
        return f"{folder}/{self.kind}.parquet"
