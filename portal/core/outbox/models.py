"""Work that must happen because a transaction committed: a row of that same transaction."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

WAITS = "Waits for an earlier message, which is about the same tenant."


class OutboxMessageQuerySet(models.QuerySet["OutboxMessage"]):
    def undone(self) -> OutboxMessageQuerySet:
        return self.filter(done_at=None)

    def due(self) -> OutboxMessageQuerySet:
        """Undone and not waiting: neither backing off nor on its way to a worker."""
        return self.undone().filter(available_at__lte=Now())

    def put_off(self) -> OutboxMessageQuerySet:
        """Not due, since an earlier message was undone when they were looked at last."""
        return self.undone().filter(available_at__gt=Now(), attempts=0, last_error=WAITS)


class OutboxMessage(models.Model):
    """One effect to come. It and `done_at` are written in one transaction, so it happens once."""

    task = models.TextField(help_text="Importable name of the function.")
    kwargs = models.JSONField(default=dict, help_text="Its arguments: plain values and ids.")
    traceparent = models.TextField(blank=True, help_text="The span that caused it, where tracing is on.")
    created_at = models.DateTimeField(db_default=Now())
    available_at = models.DateTimeField(
        db_default=Now(), help_text="Nobody takes it before: set ahead when it is sent and when it fails."
    )
    attempts = models.PositiveIntegerField(default=0, help_text="How often it ended, well or not.")
    last_error = models.TextField(blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    objects = OutboxMessageQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index("available_at", "id", condition=Q(done_at=None), name="outbox_undone"),
        ]

    def __str__(self) -> str:
        return f"{self.task} #{self.pk}"
