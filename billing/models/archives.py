"""Tenants that have left: nothing is billed to them any more, and their documents stay."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.core.audit import track
from portal.core.tenants.models import Tenant


@track()
class Archive(models.Model):
    """That a tenant has left, with all of it billed and paid: who said so, when, and why."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, related_name="archive")
    at = models.DateTimeField()
    by = models.CharField(max_length=200)
    reason = models.TextField()
    erased_at = models.DateTimeField(null=True, help_text="When what was kept of its people was erased.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(by="") & ~Q(reason=""), name="archive_has_author_and_reason")
        ]

    def __str__(self) -> str:
        return f"{self.tenant}, left {self.at:%Y-%m-%d}"
