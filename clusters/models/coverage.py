"""Hours in which a source that looks by itself did not see its cluster all along."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from clusters.models.cluster import Cluster

HOUR = 3600


class IncompleteHour(models.Model):
    """One hour of UTC that was read and not seen in full. It goes once it is read again and was seen."""

    cluster = models.ForeignKey(
        Cluster, on_delete=models.PROTECT, related_name="incomplete_hours", db_index=False
    )
    begins = models.BigIntegerField(help_text="UTC epoch second.")
    read = models.IntegerField(help_text="Seconds of it that syncs read at once; all 3600 in the end.")
    covered = models.IntegerField(help_text="Seconds of those in which the source looked.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "begins"], name="hour_is_incomplete_once"),
            models.CheckConstraint(
                condition=Q(covered__gte=0, covered__lt=F("read"), read__lte=HOUR),
                name="incomplete_hour_lacks_something",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name} at {self.begins}: {self.seen} %"

    @property
    def seen(self) -> int:
        """Percent of the hour that is not known to be unseen, rounded down."""
        return (HOUR - self.read + self.covered) * 100 // HOUR
