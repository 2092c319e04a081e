"""What was erased for having stood long enough."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.core.audit import track


@track()
class Erasure(models.Model):
    """How many rows of one kind one run of `erase_old` has erased so far: it grows with each of its transactions."""

    kind = models.CharField(max_length=20, help_text="As docs/reference/retention.md names it.")
    before = models.DateTimeField(help_text="What is older was erased.")
    begun_at = models.DateTimeField()
    rows = models.BigIntegerField(default=0)
    reason = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(reason="") & Q(rows__gte=0), name="erasure_has_a_reason")
        ]

    def __str__(self) -> str:
        return f"{self.kind} before {self.before:%Y-%m-%d}"
