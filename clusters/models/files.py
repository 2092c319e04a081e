"""Accounting files that came by the API and wait for a worker, which may be another host's."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from clusters.models.cluster import Cluster
from clusters.models.pulls import Pull


class FileFormat(models.TextChoices):
    """What printed a file."""

    SACCT = "sacct", "sacct, as text"
    SACCT_JSON = "sacct-json", "sacct, as JSON"
    PBS = "pbs", "PBS or Torque"
    LSF = "lsf", "LSF (lsb.acct)"
    GRID_ENGINE = "grid-engine", "Grid Engine (accounting)"
    GRID_ENGINE_PER_SLOT = "grid-engine-per-slot", "Grid Engine, GPUs of each slot"
    LITELLM = "litellm", "LiteLLM (spend logs)"
    OPENCOST = "opencost", "OpenCost (allocation)"


class UsageFile(models.Model):
    """One file that is to be imported, or was. Its content is deleted at its end."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="files")
    name = models.CharField(max_length=200)
    format = models.CharField(max_length=24, choices=FileFormat.choices)
    as_of = models.DateTimeField(
        null=True, help_text="Up to which the source had looked. Empty: as it proves."
    )
    digest = models.CharField(max_length=64, help_text="SHA-256 of its content.")
    size = models.BigIntegerField(help_text="Bytes.")
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField()
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Workers that took it up.")
    pull = models.ForeignKey(Pull, on_delete=models.PROTECT, null=True, related_name="+")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, help_text="Why it could not be imported.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "name", "digest"],
                condition=Q(error=""),
                name="usage_file_is_imported_once",
            ),
            models.CheckConstraint(
                condition=Q(format__in=FileFormat.values), name="usage_file_format_is_known"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["id"], condition=Q(ended_at__isnull=True), name="usage_files_to_import")
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name}: {self.name}"


class UsageFilePart(models.Model):
    """A piece of a file's content, so that no process holds the whole of it."""

    file = models.ForeignKey(UsageFile, on_delete=models.CASCADE, db_index=False, related_name="parts")
    place = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["file", "place"], name="part_of_usage_file_has_one_place")
        ]

    def __str__(self) -> str:
        return f"{self.file}, part {self.place}"
