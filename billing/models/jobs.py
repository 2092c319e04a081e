"""The jobs behind invoices: as they are, and as issued documents cover them."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from billing.models import billed_jobs_sql
from portal.core.tenants.models import Project, Tenant


class JobDescription(models.Model):
    """What a tenant may see of a job, and by what its units are computed again."""

    record_id = models.BigIntegerField()
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
    suspended = models.BigIntegerField(db_default=0)
    meter = models.TextField(db_default="", help_text="Of a sum, which is no job: its declared meter.")
    quantity = models.BigIntegerField(
        null=True, help_text="Of a sum: share_den of it make one of the meter's unit."
    )

    class Meta:
        abstract = True


DESCRIBED = tuple(field.name for field in JobDescription._meta.local_fields if field.name != "record_id")
"""The columns of a description."""


class BilledJob(JobDescription):
    """A job as an issued document covers it, kept when the job changes or leaves its tenant afterwards.

    Most jobs never do, and have no such row: then the job itself says what was billed. Written by the database alone,
    whoever changes the job (`billing.models.billed_jobs_sql`).
    """

    # The tenant that used it; documents up to `through` show the job as it stands here.
    pk = models.CompositePrimaryKey("tenant_id", "record_id", "through")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    through = models.BigIntegerField(
        help_text="`rated_through` of the newest document issued before the change."
    )

    def __str__(self) -> str:
        return self.job_id


class RatedJobQuerySet(models.QuerySet["RatedJob"]):
    """What is rated, run by run and sum by sum."""

    def runs(self) -> RatedJobQuerySet:
        """The jobs that people know: without the sums of declared meters."""
        return self.filter(meter="")

    def in_state(self, states: Collection[str]) -> RatedJobQuerySet:
        """As their scheduler calls it; one that is typed in small letters, in any spelling."""
        return self.alias(small=Lower("state")).filter(Q(state__in=states) | Q(small__in=states))


class RatedJob(JobDescription):
    """A job, or a sum of a declared meter, as it is now, and what its rated usage adds up to; in its record's month."""

    # The record first: rating looks up jobs by it, whoever their tenants are.
    pk = models.CompositePrimaryKey("record_id", "tenant_id")
    # Rating holds both rows, and they refuse to go while a job is theirs: checked there, not per job.
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    shown_at = models.BigIntegerField(
        help_text="Start, or submission while it waits: lists are ordered by it."
    )
    gpu_units = models.BigIntegerField(help_text="GPU units × seconds rated to this tenant.")
    cost_price = models.ForeignKey(
        "billing.Price",
        on_delete=models.DO_NOTHING,
        null=True,
        db_constraint=False,
        related_name="+",
        help_text="The only price that it has; empty: it has several, or none.",
    )
    cost_units = models.DecimalField(
        max_digits=30,
        decimal_places=6,
        help_text="Resource-hours at `cost_price`, or without one the cost, rounded: only to sort by, never shown.",
    )
    unpriced = models.BooleanField()
    part_of = models.GeneratedField(
        expression=models.Value(""),  # portal/schema/months.sql has it
        output_field=models.TextField(),
        db_persist=True,
        help_text='The job of several parts that it may be one of: of the pod "team/train-0" of train, "team/train".',
    )

    cost_class = models.GeneratedField(
        expression=models.Value(0),  # portal/schema/months.sql has it
        output_field=models.SmallIntegerField(),
        db_persist=True,
        help_text="That of `cost_units` once it has ended: by it lists of the most expensive jobs find them.",
    )

    objects: ClassVar = RatedJobQuerySet.as_manager()

    class Meta:
        managed = False  # portal/schema/months.sql has the table and its indexes
        db_table = "billing_ratedjob"
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="billed_job_is_kept_before_it_changes",
                level=pgtrigger.Statement,
                when=pgtrigger.After,
                operation=pgtrigger.Update,
                referencing=pgtrigger.Referencing(old="old_jobs", new="new_jobs"),  # type: ignore[no-untyped-call]
                func=billed_jobs_sql.keep_changed(DESCRIBED),
            ),
            pgtrigger.Trigger(
                name="billed_job_is_kept_before_it_goes",
                level=pgtrigger.Statement,
                when=pgtrigger.After,
                operation=pgtrigger.Delete,
                referencing=pgtrigger.Referencing(old="old_jobs"),  # type: ignore[no-untyped-call]
                func=billed_jobs_sql.keep_gone(DESCRIBED),
            ),
        ]

    def __str__(self) -> str:
        return self.job_id

    @property
    def project_name(self) -> str:
        return self.project.name


class PeriodJobs(models.Model):
    """What is kept of a tenant's jobs in a billing period, so that no page has to look through all of them.

    Written with rating, apart for each price that jobs have alone: however it is corrected, their order stays. Of the
    most expensive that ran in the period `PeriodTopJob` keeps some; the last three columns say below which place, in
    the order of cost and GPU units, none is kept. Empty: all are.
    """

    pk = models.CompositePrimaryKey("tenant_id", "period_id", "price_id")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    period = models.ForeignKey(  # periods are never deleted
        "billing.BillingPeriod",
        on_delete=models.PROTECT,
        db_index=False,
        db_constraint=False,
        related_name="+",
    )
    price_id = models.BigIntegerField(help_text="Of `RatedJob.cost_price`; 0 for several prices, or none.")
    started = models.IntegerField(db_default=0, help_text="Jobs that started in the period.")
    floor_cost = models.DecimalField(max_digits=30, decimal_places=6, null=True)
    floor_units = models.BigIntegerField(null=True)
    floor_id = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.started} jobs"


class PeriodTopJob(models.Model):
    """One of the most expensive jobs that ran in a period. What it costs its own row says."""

    pk = models.CompositePrimaryKey("tenant_id", "period_id", "record_id")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    period = models.ForeignKey(
        "billing.BillingPeriod",
        on_delete=models.PROTECT,
        db_index=False,
        db_constraint=False,
        related_name="+",
    )
    record_id = models.BigIntegerField()
    price_id = models.BigIntegerField(help_text="As of its job.")

    def __str__(self) -> str:
        return f"{self.record_id}"


class LineJobs(models.Model):
    """The jobs behind a line of an issued document: how many, and the largest. What a line covers never changes.

    Written once, by a worker, after the document was issued: until then its pages look for them.
    """

    line = models.OneToOneField(
        "billing.InvoiceLine", on_delete=models.PROTECT, primary_key=True, related_name="kept_jobs"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    jobs = models.IntegerField(help_text="Of all jobs behind the line.")
    largest = models.JSONField(
        help_text="The first of the list, in its order: record_id, service_from, service_to, units, share_num, "
        "share_den and moment of each, by name. Not what its job is called: that its job says."
    )

    def __str__(self) -> str:
        return f"{self.jobs} jobs"


class JobUser(models.Model):
    """A user of the scheduler, as evidence names it: by this row's number, so that the name can be erased.

    Erasing renames the user in every row of the tenant's jobs, and here with them: what is signed has the number only.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    name = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "name"], name="job_user_has_one_number_per_tenant")
        ]
        triggers: ClassVar = [pgtrigger.Protect(name="job_user_keeps_its_number", operation=pgtrigger.Delete)]

    def __str__(self) -> str:
        return self.name
