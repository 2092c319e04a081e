"""Which event of a run that is pushed was the newest."""

from __future__ import annotations

from django.db import models

from clusters.models.cluster import Cluster


class PushedRun(models.Model):
    """The newest event of each run: an older one that comes later changes nothing."""

    pk = models.CompositePrimaryKey("cluster_id", "source_key")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, db_index=False, related_name="+")
    source_key = models.TextField()
    time = models.DateTimeField(help_text="The event's own.")
    sequence = models.TextField()
    is_sum = models.BooleanField(db_default=False, help_text="Of a declared meter; a run never becomes one.")
    digest = models.BinaryField(help_text="SHA-256 of all in it that counts.")

    def __str__(self) -> str:
        return self.source_key
