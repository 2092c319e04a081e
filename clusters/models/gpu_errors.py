"""Errors of GPUs, each once for ever, and how far they were read."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from clusters.models.cluster import Cluster


class GpuError(models.Model):
    """One of one GPU as its exporter told it: evidence, which never changes but for the run it was matched with."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, db_index=False, related_name="gpu_errors")
    uuid = models.CharField(max_length=255, help_text="Of the GPU.")
    gpu_slice = models.CharField(max_length=20, blank=True, help_text="Of MIG; empty: the whole GPU.")
    cause = models.CharField(
        max_length=20, help_text='"XID 79" by NVIDIA\'s number, or a counter of its memory: "ECC_DBE".'
    )
    at = models.DateTimeField(help_text="The first sample that told of it.")
    clean_until = models.DateTimeField(help_text="The last sample before it: it happened in between.")
    node = models.CharField(max_length=255, blank=True)
    gpu_model = models.CharField(max_length=255, blank=True)
    jobs = ArrayField(
        models.CharField(max_length=700), help_text="Who held it around then, as the exporter named them."
    )
    record_id = models.BigIntegerField(
        null=True, help_text="The run that held it; empty: none, or not one alone."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "uuid", "gpu_slice", "cause", "at"], name="gpu_error_is_stored_once"
            ),
            models.CheckConstraint(
                condition=Q(at__gte=F("clean_until")), name="gpu_error_comes_after_its_absence"
            ),
            models.CheckConstraint(condition=~Q(cause=""), name="gpu_error_has_a_cause"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["at"], name="gpu_errors_by_time"),
            models.Index(fields=["record_id"], name="gpu_errors_of_run"),
        ]

    def __str__(self) -> str:
        return f"{self.cause} of {self.uuid}"


class GpuErrorReading(models.Model):
    """How far a cluster's GPU errors were read, and how the last readings went."""

    cluster = models.OneToOneField(
        Cluster, on_delete=models.PROTECT, primary_key=True, related_name="gpu_error_reading"
    )
    complete_through = models.DateTimeField(
        null=True, help_text="Whole hours before this moment have been read."
    )
    next_at = models.DateTimeField(null=True, help_text="Not due before; empty: due now.")
    failures = models.PositiveIntegerField(default=0, help_text="Readings that failed in a row.")
    last_error = models.TextField(blank=True)
    notes = models.TextField(blank=True, help_text="What the last reading noticed, a sentence a line.")

    def __str__(self) -> str:
        return f"GPU errors of {self.cluster.name}"
