"""Closes that operators ask for on their page: rehearsed or issued by a worker, with what became of each tenant."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q, QuerySet

from portal.audit import track
from portal.tenants.models import Tenant


class CloseKind(models.TextChoices):
    """What a close was asked for."""

    REHEARSAL = "rehearsal", "Rehearsal"
    ISSUE = "issue", "Close"


class CloseRunQuerySet(QuerySet["CloseRun"]):
    """Runs by how far they are."""

    def undone(self) -> CloseRunQuerySet:
        return self.filter(ended_at__isnull=True)


@track(exclude=["done", "begun_at", "attempts"])
class CloseRun(models.Model):
    """One close of a month for all tenants. A worker goes on with it where another one died."""

    month = models.CharField(max_length=7, help_text="2026-03: in which the periods start.")
    kind = models.CharField(max_length=9, choices=CloseKind.choices)
    by = models.CharField(max_length=200)
    asked_at = models.DateTimeField(help_text="When an operator asked for it.")
    accept_incomplete = models.TextField(blank=True, help_text="Why it bills although usage may be missing.")
    total = models.PositiveIntegerField(help_text="Tenants.")
    done = models.PositiveIntegerField(default=0, help_text="Tenants.")
    begun_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="How often a worker took it up.")
    error = models.TextField(blank=True, help_text="Why it was given up.")

    objects = CloseRunQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["month"], condition=Q(ended_at__isnull=True), name="month_is_closed_by_one_at_a_time"
            ),
            models.CheckConstraint(condition=Q(kind__in=CloseKind.values), name="close_kind_is_known"),
            models.CheckConstraint(condition=Q(done__lte=F("total")), name="close_is_done_once"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.month}"


class CloseResult(models.Model):
    """What became of one tenant in a run; of a rehearsal, what would."""

    run = models.ForeignKey(CloseRun, on_delete=models.CASCADE, db_index=False, related_name="results")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    outcome = models.CharField(max_length=20, help_text="As the close tells it, such as 'blocked'.")
    number = models.CharField(max_length=40, blank=True)
    currency = models.CharField(max_length=3, blank=True)
    total = models.BigIntegerField(null=True, help_text="Minor units, with tax.")
    told = models.JSONField(help_text="As `close_period --json` tells it.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "tenant"], name="tenant_is_closed_once_in_a_run")
        ]
        indexes: ClassVar = [models.Index(fields=["run", "outcome", "id"], name="results_by_outcome")]

    def __str__(self) -> str:
        return f"{self.tenant}: {self.outcome}"
