"""What an operator has looked at before it is done: written as it would be by a worker, taken back, and shown."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q, QuerySet


class PreviewKind(models.TextChoices):
    """What is previewed."""

    DOCUMENTS = "documents", "Documents of a close"
    PLAN = "plan", "Draft of a plan"


class PreviewQuerySet(QuerySet["Preview"]):
    """Previews by how far they are."""

    def unfinished(self) -> PreviewQuerySet:
        return self.filter(ended_at__isnull=True)


class Preview(models.Model):
    """One preview. It has names and amounts of tenants, so its row is deleted a day after it was requested."""

    kind = models.CharField(max_length=9, choices=PreviewKind.choices)
    inputs = models.JSONField(help_text="What is previewed, as its page requested it.")
    requested_by = models.CharField(max_length=254)
    requested_at = models.DateTimeField()
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Workers that took it up.")
    started_at = models.DateTimeField(null=True, help_text="The moment that it shows.")
    done = models.PositiveIntegerField(default=0, help_text="Parts; 0 where it has only one.")
    total = models.PositiveIntegerField(default=0, help_text="Parts.")
    ended_at = models.DateTimeField(null=True)
    result = models.BinaryField(null=True, help_text="JSON, as the page of its kind reads it.")
    error = models.TextField(blank=True, help_text="Why there is no result.")

    objects = PreviewQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(kind__in=PreviewKind.values), name="preview_kind_is_known"),
            models.CheckConstraint(condition=Q(done__lte=F("total")), name="preview_is_done_once"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} for {self.requested_by}"
