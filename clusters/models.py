"""What was used, by which scheduler account, when. Knows no tenants and no money.

Instants of usage are UTC epoch seconds (`bigint`), since everything downstream is integer
seconds; the tables that people edit use `timestamptz`.
"""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from portal.audit import track


class ClusterError(Exception):
    """A cluster cannot be changed so; the message says why and what to do."""


class ClusterKind(models.TextChoices):
    IMPORT = "import", "Accounting files"


ZONE_IS_KEPT = (
    "Usage has been read in this cluster's zone, which is part of what identifies a job: read in another, every "
    "file would bill its jobs anew. Give the other zone to a new cluster."
)
_GUARD_ZONE = f"""
IF NEW.timezone <> OLD.timezone AND EXISTS (SELECT 1 FROM clusters_usagerecord WHERE cluster_id = OLD.id) THEN
    RAISE EXCEPTION '{ZONE_IS_KEPT.replace("'", "''")}';
END IF;
RETURN NEW;
"""  # noqa: S608 - a constant sentence


@track(exclude=["complete_through"])
class Cluster(models.Model):
    """A scheduler and its machines, as the operator names them."""

    Kind = ClusterKind

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=ClusterKind.choices, default=ClusterKind.IMPORT)
    timezone = models.CharField(
        max_length=64, default="UTC", help_text="IANA zone in which accounting files print their times."
    )
    complete_through = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Watermark: all usage before this moment has been read. Moves in the transaction of its rows.",
    )

    class Meta:
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="cluster_zone_is_kept",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                func=_GUARD_ZONE,
            )
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        kept = Cluster.objects.filter(pk=self.pk).first()
        if kept is not None and kept.timezone != self.timezone:
            try:
                kept.refuse_new_zone()
            except ClusterError as error:
                raise ValidationError({"timezone": str(error)}) from error

    def refuse_new_zone(self) -> None:
        """Raise ClusterError once usage has been read; the database refuses likewise."""
        if UsageRecord.objects.filter(cluster=self).exists():
            raise ClusterError(ZONE_IS_KEPT)


class Account(models.Model):
    """The scheduler's name for who used it; which tenant owns it is a later fact."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="accounts")
    name = models.CharField(max_length=255, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "name"], name="account_is_named_once_per_cluster")
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name}/{self.name}"


class Usage(models.Model):
    """The columns that a record and its superseded revisions share; `UsageFact` says what each means."""

    source_key = models.TextField(help_text="Unique for ever within the cluster.")
    revision = models.PositiveIntegerField(default=1)
    job_id = models.TextField()
    name = models.TextField()
    user = models.TextField()
    queue = models.TextField()
    qos = models.TextField()
    priority_class = models.TextField()
    gpus = models.IntegerField(help_text="Whole GPUs, or slices of share_num/share_den each.")
    gpu_model = models.TextField()
    mig_profile = models.TextField()
    share_num = models.IntegerField()
    share_den = models.IntegerField()
    cpu_milli = models.BigIntegerField(help_text="Thousandths of a core.")
    memory_mib = models.BigIntegerField()
    nodes = models.IntegerField()
    node_list = models.TextField()
    requested = models.TextField()
    time_limit = models.BigIntegerField(null=True, help_text="Seconds; empty: none or unknown.")
    submitted = models.BigIntegerField(null=True, help_text="UTC epoch second.")
    eligible = models.BigIntegerField(null=True)
    started = models.BigIntegerField(null=True, help_text="Empty while waiting.")
    ended = models.BigIntegerField(null=True, help_text="Empty while running.")
    seen_until = models.BigIntegerField(
        null=True,
        help_text="While open: the last second in which a pass proved it running; billed up to here.",
    )
    suspended = models.BigIntegerField(help_text="Seconds within [started, ended) in which nothing was held.")
    state = models.TextField(help_text="The scheduler's word; decides nothing here, plans may price by it.")
    exit_code = models.TextField()

    class Meta:
        abstract = True


class UsageRecord(Usage):
    """The newest revision of each fact, exactly one row per source key."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, db_index=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, db_index=False)
    last_seen = models.DateTimeField(help_text="When a pass last wrote it; kept up for open records only.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "source_key"], name="usage_is_recorded_once"),
            models.CheckConstraint(
                condition=Q(ended__isnull=True) | Q(started__isnull=False, ended__gte=models.F("started")),
                name="usage_ends_after_it_starts",
            ),
            models.CheckConstraint(
                condition=Q(gpus__gte=0, cpu_milli__gte=0, memory_mib__gte=0, nodes__gte=0, suspended__gte=0),
                name="usage_is_never_negative",
            ),
            models.CheckConstraint(
                condition=Q(share_num__gte=1, share_den__gte=models.F("share_num")),
                name="usage_share_is_a_fraction_of_one_gpu",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["account", "started"], name="usage_of_account"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id or self.source_key}"


class UsageRevision(Usage):
    """A superseded revision, kept for ever. Partitioned by the month it was superseded; no foreign keys."""

    record_id = models.BigIntegerField()
    account_id = models.BigIntegerField()
    superseded_at = models.DateTimeField()
    superseded_month = models.DateField(help_text="Partition key: first day of the month of superseded_at.")

    class Meta:
        managed = False
        db_table = "clusters_usagerevision"

    def __str__(self) -> str:
        return f"{self.source_key} r{self.revision}"


class Pull(models.Model):
    """One pass over a source: what it read and what became of it."""

    class Outcome(models.TextChoices):
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="pulls")
    source = models.TextField(help_text="The file's name, or the endpoint.")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.RUNNING)
    error = models.TextField(blank=True)
    as_of = models.DateTimeField(null=True, help_text="The moment up to which the source had looked.")
    read = models.BigIntegerField(default=0)
    new = models.BigIntegerField(default=0)
    unchanged = models.BigIntegerField(default=0)
    revised = models.BigIntegerField(default=0)
    quarantined = models.BigIntegerField(default=0)
    steps = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.cluster.name}: {self.source}"


class Quarantined(models.Model):
    """A row that could not be true or read: kept with its reason, once however often it comes."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="quarantine")
    code = models.CharField(max_length=60)
    reason = models.TextField()
    raw = models.TextField(help_text="As it came; bytes that are not UTF-8 as \\xNN.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of raw.")
    source_key = models.TextField(blank=True)
    source = models.TextField(blank=True)
    line = models.BigIntegerField(null=True)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    resolved_at = models.DateTimeField(
        null=True, blank=True, help_text="When a good row of the same key came, or an operator settled it."
    )
    resolution = models.TextField(blank=True)

    class Meta:
        verbose_name_plural = "quarantined rows"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "digest"], name="quarantine_keeps_a_row_once")
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name}: {self.code}"
