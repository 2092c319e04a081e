"""How busy runs were while they held their devices, hour by hour, as telemetry told it last."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from clusters.connectors.base import BusySource
from clusters.models.usage import UsageRecord


class UtilisationSource(models.TextChoices):
    """`BusySource` as a column."""

    DEVICE = BusySource.DEVICE.value, "Its devices"
    NODE = BusySource.NODE.value, "Its node"
    MODEL = BusySource.MODEL.value, "All devices of the model"
    CLUSTER = BusySource.CLUSTER.value, "The whole cluster"


class UtilisationHour(models.Model):
    """One run in one hour of UTC. Replaced in place when it is read again with other values; never a revision.

    In device-seconds: one of the record's `gpus`, also where that is a slice, counts as one device. What the run held
    and `covered` does not reach is unknown, which is neither work nor waste.
    """

    Source = UtilisationSource

    pk = models.CompositePrimaryKey("record_id", "hour")
    # Records are never deleted: watched over by who writes these rows, not per row.
    record = models.ForeignKey(
        UsageRecord,
        on_delete=models.PROTECT,
        related_name="utilisation",
        db_index=False,
        db_constraint=False,
    )
    hour = models.BigIntegerField(help_text="UTC epoch second at which the hour begins.")
    busy = models.DecimalField(
        max_digits=24, decimal_places=9, help_text="Device-seconds that its devices worked."
    )
    covered = models.BigIntegerField(help_text="Device-seconds of the run that telemetry covered.")
    source = models.CharField(max_length=10, choices=UtilisationSource.choices)
    metric = models.TextField(help_text="What was measured: DCGM_FI_PROF_GR_ENGINE_ACTIVE.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(busy__gte=0, covered__gte=0), name="utilisation_is_never_negative"
            ),
            models.CheckConstraint(
                condition=Q(busy__lte=models.F("covered")), name="utilisation_is_of_what_was_covered"
            ),
            models.CheckConstraint(
                condition=Q(source__in=UtilisationSource.values), name="utilisation_source_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.record_id} at {self.hour}: {self.busy} of {self.covered}"
