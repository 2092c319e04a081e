"""The charges of all tenants in a month as a file that an operator asked for: written by a worker, stored in pieces."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from portal.core.audit import track


class FocusFormat(models.TextChoices):
    """How the file is written; the value ends its name."""

    CSV = "csv", "CSV"
    PARQUET = "parquet", "Parquet"


class FocusExportQuerySet(QuerySet["FocusExport"]):
    """Exports by how far they are."""

    def unfinished(self) -> FocusExportQuerySet:
        return self.filter(ended_at__isnull=True)

    def written(self) -> FocusExportQuerySet:
        """Those that have a file."""
        return self.filter(ended_at__isnull=False, error="")

    def replaced(self, before: datetime) -> FocusExportQuerySet:
        """Those of which a newer file of the same month and format was written, at this moment at the latest."""
        newer = FocusExport.objects.written().filter(
            month=OuterRef("month"), format=OuterRef("format"), pk__gt=OuterRef("pk"), ended_at__lte=before
        )
        return self.filter(Exists(newer))


@track(exclude=["done", "total", "started_at", "snapshot", "attempts"])
class FocusExport(models.Model):
    """One export of a month. Its row goes with its file."""

    month = models.DateField(help_text="Its first day: billing periods that begin in it.")
    format = models.CharField(max_length=7, choices=FocusFormat.choices)
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField()
    total = models.PositiveIntegerField(default=0, help_text="Tenants.")
    done = models.PositiveIntegerField(default=0, help_text="Tenants.")
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Workers that took it up.")
    started_at = models.DateTimeField(null=True, help_text="Empty: it waits for a worker, or for another.")
    snapshot = models.TextField(
        blank=True, help_text="Which transactions were committed as it started, as PostgreSQL writes it."
    )
    ended_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, help_text="Why there is no file.")
    name = models.CharField(max_length=100, blank=True, help_text="Of the file.")
    status = models.CharField(max_length=11, blank=True, help_text="Of the dataset: final or preliminary.")
    size = models.BigIntegerField(default=0, help_text="Bytes.")
    fetched_by = models.CharField(max_length=200, blank=True, help_text="Who downloaded it last.")
    fetched_at = models.DateTimeField(null=True)

    objects = FocusExportQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["month"],
                condition=Q(ended_at__isnull=True),
                name="month_is_in_one_focus_export_at_a_time",
            ),
            models.CheckConstraint(
                condition=Q(format__in=FocusFormat.values), name="focus_export_format_is_known"
            ),
            models.CheckConstraint(condition=Q(done__lte=F("total")), name="focus_export_is_done_once"),
        ]

    def __str__(self) -> str:
        return f"{self.get_format_display()} of {self.month:%Y-%m}"


class FocusExportPart(models.Model):
    """A piece of the file, so that no process holds the whole of it."""

    export = models.ForeignKey(FocusExport, on_delete=models.CASCADE, db_index=False, related_name="parts")
    place = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["export", "place"], name="part_of_focus_export_has_one_place")
        ]

    def __str__(self) -> str:
        return f"{self.export}, part {self.place}"
