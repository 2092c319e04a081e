"""What a cluster had to give, node by node."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from clusters.connectors.base import NodeState
from clusters.models.cluster import Cluster


class CapacityState(models.TextChoices):
    """`NodeState` as a column."""

    UP = NodeState.UP.value, "Up"
    DRAINED = NodeState.DRAINED.value, "Drained"
    DOWN = NodeState.DOWN.value, "Down"


def same_text(text: str) -> Func:
    """A text of the cluster as a one-value range: core GiST excludes on ranges alone."""
    number = Func(text, "cluster", function="hashtextextended")
    return Func(number, number, Value("[]"), function="int8range")


class CapacityInterval(models.Model):
    """A node had so many GPUs of a model, in one state, during [since, until): UTC epoch seconds."""

    State = CapacityState

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="capacity", db_index=False)
    node = models.CharField(max_length=255)
    gpu_model = models.CharField(max_length=255, blank=True, help_text="Empty where the source does not say.")
    gpus = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=CapacityState.choices)
    since = models.BigIntegerField()
    until = models.BigIntegerField(null=True, help_text="Empty while it lasts.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "node", "gpu_model"],
                condition=Q(until__isnull=True),
                name="capacity_is_in_one_state_now",
            ),
            models.CheckConstraint(
                condition=Q(until__isnull=True) | Q(until__gt=F("since")),
                name="capacity_ends_after_it_starts",
            ),
            models.CheckConstraint(
                condition=Q(state__in=CapacityState.values), name="capacity_state_is_known"
            ),
            ExclusionConstraint(
                name="capacity_is_in_one_state_at_a_time",
                expressions=[
                    (same_text("node"), RangeOperators.OVERLAPS),
                    (same_text("gpu_model"), RangeOperators.OVERLAPS),
                    (Func("since", "until", Value("[)"), function="int8range"), RangeOperators.OVERLAPS),
                ],
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["cluster", "since"], name="capacity_of_cluster")]

    def __str__(self) -> str:
        return f"{self.node}: {self.gpus} {self.gpu_model or 'GPUs'} {self.state}"
