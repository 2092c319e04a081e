"""Who used what, when: the newest revision of each fact, and those it superseded."""

from __future__ import annotations

from django.db import models

from clusters.models.cluster import Account, Cluster


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
        help_text="While open: the last second in which a sync proved it running; billed up to here.",
    )
    suspended = models.BigIntegerField(help_text="Seconds within [started, ended) in which nothing was held.")
    state = models.TextField(help_text="The scheduler's word; decides nothing here, plans may price by it.")
    exit_code = models.TextField()
    gpu_memory_mib = models.BigIntegerField(db_default=0, help_text="Memory of the devices that it held.")
    billing = models.BigIntegerField(db_default=0, help_text="Slurm's billing TRES, a weight.")
    meter = models.TextField(
        db_default="",
        help_text="Of a sum, its declared meter; `gpu_model` has its dimensions then. A run has none.",
    )
    quantity = models.BigIntegerField(
        null=True, help_text="Of a sum: share_den of it make one of the meter's unit."
    )

    class Meta:
        abstract = True


class UsageRecord(Usage):
    """The newest revision of each fact, exactly one row per source key.

    Partitioned by month, of an instant that never changes: that in the source key (`usage_key_month`), or else the
    one that `UsageKey` holds. Its months since 1970 are the upper bits of the id: a look-up by id reads one partition.
    """

    id = models.BigIntegerField(primary_key=True, help_text="Months since 1970 << 40 | a number of its own.")
    # Whoever writes a record holds both rows, and they refuse to go while it stands: checked there, not per record.
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, db_index=False, db_constraint=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, db_index=False, db_constraint=False)
    last_seen = models.DateTimeField(help_text="When a sync last wrote it; kept up for open records only.")

    class Meta:
        managed = False  # portal/schema/months.sql has the table, its constraints and indexes
        db_table = "clusters_usagerecord"

    def __str__(self) -> str:
        return f"{self.job_id or self.source_key}"


class UsageKey(models.Model):
    """A source key that says no month, and the record of it: for ever one, whatever its times become.

    Written by the database alone, with the record; the keys of Slurm have none.
    """

    pk = models.CompositePrimaryKey("cluster_id", "source_key")
    cluster = models.ForeignKey(
        Cluster, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    source_key = models.TextField()
    record_id = models.BigIntegerField()

    def __str__(self) -> str:
        return self.source_key


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


class VanishedRun(models.Model):
    """A run that is open here while the scheduler no longer has a row of it: billed up to where it was last seen.

    Beside the record, so that flagging writes neither a revision nor a row of the large table. It goes
    when a pull returns the run again.
    """

    # Records are never deleted. A foreign key would lock this table whenever a month of records comes or goes.
    record = models.OneToOneField(
        UsageRecord, on_delete=models.CASCADE, related_name="vanished", db_constraint=False
    )
    since = models.DateTimeField(help_text="When a sync first asked after it in vain.")

    def __str__(self) -> str:
        return f"{self.record}"
