"""What pages show of a tenant or cluster with many jobs, computed by a worker."""

from __future__ import annotations

from django.db import models


class Snapshot(models.Model):
    """Figures that a page requested and a worker computes. Written anew as a whole, deleted once nobody looks."""

    requested_at = models.DateTimeField(null=True, help_text="Since when a worker is to compute it.")
    as_of = models.DateTimeField(null=True, help_text="When it was computed. Empty: it has not been yet.")
    seconds = models.IntegerField(default=0, help_text="How long that took, rounded up.")

    class Meta:
        abstract = True
