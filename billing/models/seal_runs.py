"""What operators or the night ask to be done with a sealed month: done by a worker, one after another."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q, QuerySet

from portal.core.audit import track


class SealKind(models.TextChoices):
    """What is asked for of a month."""

    SEAL = "seal", "Seal"
    UNSEAL = "unseal", "Unseal"
    CHECK = "check", "Check files"
    DROP = "drop", "Drop rows"
    LOAD = "load", "Load rows"


class SealRunQuerySet(QuerySet["SealRun"]):
    """Runs by how far they are."""

    def unfinished(self) -> SealRunQuerySet:
        return self.filter(ended_at__isnull=True)


@track(exclude=["started_at", "attempts"])
class SealRun(models.Model):
    """What is to be done with a month, and how that ended. Where a worker dies, another goes on."""

    month = models.DateField(help_text="Its first day.")
    kind = models.CharField(max_length=6, choices=SealKind.choices)
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField(help_text="When an operator or the night asked for it.")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Workers that took it up.")
    error = models.TextField(blank=True, help_text="Why it was not done.")

    objects = SealRunQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["month"],
                condition=Q(ended_at__isnull=True),
                name="month_is_in_one_seal_run_at_a_time",
            ),
            models.CheckConstraint(condition=Q(kind__in=SealKind.values), name="seal_kind_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}, {self.month:%Y-%m}"
