"""Webhooks and what was sent to them."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from portal.core.audit import track
from portal.core.tenants.models import Tenant, User
from portal.core.vault import SealedField

SECRETS = ("secret", "previous_secret")
"""Columns that rest encrypted."""

STATE = ("failing_since", "paused_until", "claimed_until", "announced_at")
"""Columns that deliveries move by themselves."""


class WebhookState(models.TextChoices):
    """Whether it gets events; if not, why."""

    ACTIVE = "active", "Active"
    OFF = "off", "Turned off"
    GONE = "gone", "Turned off: the endpoint answered 410"
    FAILING = "failing", "Turned off: every attempt of 5 days failed"


@track(exclude=[*SECRETS, *STATE])
class Webhook(models.Model):
    """Where events of a tenant are posted to; without a tenant, an operator's: it can have everybody's events."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, related_name="webhooks")
    name = models.CharField(max_length=60, help_text="Its name in addresses of the API.")
    url = models.CharField(max_length=500, help_text="Where events are posted to.")
    event_types = ArrayField(
        models.CharField(max_length=40), default=list, blank=True, help_text="Empty: all, later ones too."
    )
    secret = SealedField(help_text="Signs what is sent.")
    previous_secret = SealedField(help_text="Signs it too, until `previous_until`.")
    previous_until = models.DateTimeField(null=True)
    state = models.CharField(max_length=10, choices=WebhookState.choices, default=WebhookState.ACTIVE)
    maker = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    failing_since = models.DateTimeField(null=True, help_text="First failure since the last success.")
    paused_until = models.DateTimeField(null=True, help_text="The endpoint asked for no attempt before.")
    claimed_until = models.DateTimeField(
        null=True, help_text="A worker sends to it until then, at the latest."
    )
    announced_at = models.DateTimeField(
        null=True, help_text="When its owners were mailed that it was turned off."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "name"], nulls_distinct=False, name="webhook_has_its_name_once_a_tenant"
            ),
            models.CheckConstraint(
                condition=Q(state__in=WebhookState.values), name="webhook_has_a_known_state"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class DeliveryState(models.TextChoices):
    """What became of it."""

    WAITING = "waiting", "Waiting"
    DELIVERED = "delivered", "Delivered"
    FAILED = "failed", "Failed"
    STOPPED = "stopped", "Stopped: the webhook was turned off"


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def waiting(self) -> DeliveryQuerySet:
        return self.filter(state=DeliveryState.WAITING)


class Delivery(models.Model):
    """One event for one webhook, and how the last attempt went. Each attempt has the same `webhook-id`."""

    webhook = models.ForeignKey(Webhook, on_delete=models.PROTECT, related_name="deliveries")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, related_name="+", help_text="The webhook's."
    )
    event_number = models.BigIntegerField(null=True, help_text="Of the event; empty: a test.")
    type = models.CharField(max_length=40)
    created_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Since it was sent, or sent again.")
    next_at = models.DateTimeField(null=True, help_text="Of the next attempt.")
    tried_at = models.DateTimeField(null=True, help_text="Of the last attempt.")
    status = models.PositiveSmallIntegerField(null=True, help_text="Of HTTP; empty: there was no answer.")
    milliseconds = models.PositiveIntegerField(null=True, help_text="How long the last attempt took.")
    answer = models.TextField(default="", help_text="The first 1,024 bytes of what was answered.")
    error = models.CharField(max_length=40, default="", help_text="Code of what kept it from an answer.")

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["webhook", "event_number"],
                condition=Q(event_number__isnull=False),
                name="event_is_delivered_once_to_a_webhook",
            ),
            models.CheckConstraint(
                condition=Q(state="waiting", next_at__isnull=False) | (~Q(state="waiting") & Q(next_at=None)),
                name="delivery_has_a_next_attempt_while_it_waits",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                "webhook",
                "next_at",
                "event_number",
                condition=Q(next_at__isnull=False),
                name="deliveries_due",
            ),
            models.Index(fields=["webhook", "-id"], name="deliveries_of_webhook"),
            models.Index(fields=["created_at"], name="deliveries_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.type} to {self.webhook_id}"
