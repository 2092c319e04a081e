"""The Prometheus that tells how busy the devices of a Slurm cluster's jobs are, and how its last readings went."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from clusters.models.cluster import Cluster
from clusters.models.endpoint import Reach, stamps
from portal.core.audit import track

TELEMETRY_SECRETS = ("client_key", "headers", "token", "password", "aws")
"""Columns that rest encrypted."""

STATE = ("complete_through", "next_at", "failures", "last_error", "last_success_at", "notes")
"""Columns that readings move by themselves."""


@track(exclude=[*TELEMETRY_SECRETS, *STATE])
class Telemetry(Reach):
    """Read after the pulls over the scheduler, whose jobs it tells of; its trouble is never theirs.

    The history has every change of it but no secret: of those it has who changed one, and when.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.PROTECT, related_name="telemetry")
    enabled = models.BooleanField(default=True, help_text="It is read on schedule.")

    complete_through = models.DateTimeField(
        null=True, editable=False, help_text="Whole hours before this moment have been read."
    )
    next_at = models.DateTimeField(null=True, editable=False, help_text="Not due before; empty: due now.")
    failures = models.PositiveIntegerField(
        default=0, editable=False, help_text="Readings that failed in a row."
    )
    last_error = models.TextField(blank=True, editable=False)
    last_success_at = models.DateTimeField(null=True, editable=False)
    notes = models.TextField(
        blank=True, editable=False, help_text="What the last reading noticed, a sentence a line."
    )

    class Meta:
        verbose_name_plural = "telemetry"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(base_url="") | ~Q(unix_socket=""), name="telemetry_leads_somewhere"
            )
        ]
        triggers: ClassVar = [stamps("telemetry_credentials_stamped", TELEMETRY_SECRETS)]

    def __str__(self) -> str:
        return f"Telemetry of {self.cluster.name} at {self.address}"
