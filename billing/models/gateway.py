"""What a gateway told of, and what this deployment is called there."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q


class GatewayAccount(models.Model):
    """What this deployment is called at the gateway, and how far its events were read. One row."""

    deployment = models.UUIDField(default=uuid.uuid4, help_text="On everything of ours at the gateway.")
    events_through = models.BigIntegerField(default=0, help_text="Epoch second up to which events were read.")
    charges_begun = models.BigIntegerField(
        null=True, help_text="Epoch second at which reading of all charges began; none: that is done."
    )
    charges_down_to = models.BigIntegerField(
        null=True, help_text="Epoch second down to which they were read; none: not one page."
    )
    locked_out_at = models.DateTimeField(null=True, help_text="The key was refused: nothing is collected.")
    lockout_reason = models.TextField(blank=True)
    live = models.BooleanField(null=True, help_text="The mode in which it collects; test and live never mix.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(pk=1), name="there_is_one_gateway_account")
        ]

    def __str__(self) -> str:
        return str(self.deployment)


class EventState(models.TextChoices):
    STORED = "stored", "To be applied"
    APPLIED = "applied", "Applied"
    IGNORED = "ignored", "Nothing to do"
    NEEDS_REVIEW = "review", "Needs review"
    SETTLED = "settled", "Dealt with"


class GatewayEvent(models.Model):
    """That the gateway told of something: stored once, applied from the object as it stands then."""

    id = models.CharField(primary_key=True, max_length=100)
    type = models.CharField(max_length=100)
    object_id = models.CharField(max_length=100)
    object_kind = models.CharField(max_length=60)
    live = models.BooleanField()
    created = models.BigIntegerField(help_text="Epoch second at the gateway.")
    received_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=EventState.choices, default=EventState.STORED)
    tenant_slug = models.CharField(
        max_length=50,
        blank=True,
        help_text="Whose it is, where that is told: nothing is charged to it while this needs review.",
    )
    reason = models.TextField(
        blank=True, help_text="Why nothing is to be done, what went wrong last, or who dealt with it."
    )
    tries = models.PositiveIntegerField(default=0)
    applied_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["received_at"], condition=Q(state="stored"), name="events_to_apply")
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.object_id}"
