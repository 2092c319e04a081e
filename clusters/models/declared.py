"""What a cluster that nobody observes had to give, as its operator declares it."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from clusters.models.capacity import CapacityState, same_text
from clusters.models.cluster import Cluster
from portal.core.audit import track


@track()
class DeclaredNode(models.Model):
    """A node had so many GPUs of a model, in one state, during the days [since, until) of the cluster's zone."""

    State = CapacityState

    cluster = models.ForeignKey(
        Cluster, on_delete=models.CASCADE, related_name="declared_nodes", db_index=False
    )
    name = models.CharField(max_length=255)
    gpu_model = models.CharField("GPU model", max_length=255, help_text="As jobs name it: rtx4090.")
    gpus = models.PositiveIntegerField("GPUs")
    state = models.CharField(max_length=10, choices=CapacityState.choices, default=CapacityState.UP)
    since = models.DateField(null=True, blank=True, help_text="First day; empty: always.")
    until = models.DateField(
        null=True, blank=True, help_text="First day on which it is no more so; empty: it lasts."
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(gpus__gt=0), name="declared_node_has_gpus"),
            models.CheckConstraint(
                condition=Q(since__isnull=True) | Q(until__isnull=True) | Q(until__gt=F("since")),
                name="declared_node_ends_after_it_starts",
            ),
            models.CheckConstraint(
                condition=Q(state__in=CapacityState.values), name="declared_node_state_is_known"
            ),
            ExclusionConstraint(
                name="declared_node_is_in_one_state_at_a_time",
                expressions=[
                    (same_text("name"), RangeOperators.OVERLAPS),
                    (same_text("gpu_model"), RangeOperators.OVERLAPS),
                    (Func("since", "until", Value("[)"), function="daterange"), RangeOperators.OVERLAPS),
                ],
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["cluster", "name"], name="declared_nodes_of_cluster")]

    def __str__(self) -> str:
        return f"{self.cluster.name}/{self.name}: {self.gpus} {self.gpu_model} {self.state}"
