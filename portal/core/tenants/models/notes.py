"""What operators write down about a tenant, for each other."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.core.audit import track
from portal.core.tenants.models.tenants import Tenant

LONGEST_NOTE = 2000


@track(personal=["author", "text"])
class TenantNote(models.Model):
    """A note of an operator on a tenant. No page, list or history of the tenant has it: its pages may not read it."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    author = models.CharField(max_length=254, help_text="The operator's address.")
    text = models.CharField(max_length=LONGEST_NOTE)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(text=""), name="tenant_note_has_a_text"),
        ]
        indexes: ClassVar = [models.Index("tenant", "created_at", name="notes_of_tenant")]

    def __str__(self) -> str:
        return f"note on {self.tenant}"
