"""Events, and how far each tenant's are counted."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from portal.core.tenants.models import Tenant


class EventType(models.TextChoices):
    """What can happen. New types come; none changes its meaning."""

    INVOICE_ISSUED = "invoice.issued"
    INVOICE_PAID = "invoice.paid"
    INVOICE_VOIDED = "invoice.voided"
    INVOICE_OVERDUE = "invoice.overdue"
    CREDIT_NOTE_ISSUED = "credit_note.issued"
    PAYMENT_SUCCEEDED = "payment.succeeded"
    PAYMENT_FAILED = "payment.failed"
    PAYMENT_NEEDS_ACTION = "payment.needs_action"
    WALLET_LOW = "wallet.low"
    WALLET_TOPPED_UP = "wallet.topped_up"
    QUOTA_THRESHOLD = "quota.threshold"
    QUOTA_BLOCKED = "quota.blocked"
    QUOTA_LIFTED = "quota.lifted"
    QUOTA_RESERVATION_LAPSED = "quota.reservation_lapsed"
    QUOTA_ENDING = "quota.ending"
    QUOTA_ENDED = "quota.ended"
    WASTE_FOUND = "waste.found"
    WASTE_ENDED = "waste.ended"
    CLOSE_FINISHED = "close.finished"
    CLUSTER_STALE = "cluster.stale"
    USAGE_QUARANTINED = "usage.quarantined"


OPERATORS = frozenset({EventType.CLOSE_FINISHED, EventType.CLUSTER_STALE, EventType.USAGE_QUARANTINED})
"""Types that belong to no tenant."""


class EventQuerySet(models.QuerySet["Event"]):
    def numbered(self) -> EventQuerySet:
        """Those that have their place: what readers see."""
        return self.filter(number__isnull=False)


class Event(models.Model):
    """One thing that happened to one object. Written with what caused it, and never changed but for its place."""

    type = models.CharField(max_length=40, choices=EventType.choices)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, related_name="+", help_text="Empty: the operators' own."
    )
    kind = models.CharField(
        max_length=8, help_text="Of the object, as its ids in the API begin: inv, pay, wal."
    )
    key = models.BigIntegerField(help_text="The object's row.")
    state = models.CharField(max_length=40, help_text="Of the object, when this was written.")
    cause = models.CharField(
        max_length=100, default="", help_text="What is said once for each type; empty: each time."
    )
    at = models.DateTimeField(db_default=Now(), help_text="When its transaction began.")
    number = models.BigIntegerField(
        null=True, unique=True, help_text="Place among all events, in the order of commits; given after that."
    )
    sequence = models.BigIntegerField(
        null=True, help_text="Place among the tenant's events: 1, 2, 3, without a gap."
    )

    objects = EventQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["type", "cause"], condition=~Q(cause=""), name="event_is_written_once_for_its_cause"
            ),
            models.CheckConstraint(
                condition=Q(number=None, sequence=None) | Q(number__isnull=False, sequence__isnull=False),
                name="event_has_both_places_or_none",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["id"], condition=Q(number=None), name="events_without_a_number"),
            models.Index(fields=["tenant", "number"], name="events_of_tenant"),
            models.Index(fields=["at"], name="events_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.kind} {self.key}"


class EventCounter(models.Model):
    """How many events of a tenant, or of the operators, have their place: it outlives the events."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    sequence = models.BigIntegerField()
    number = models.BigIntegerField(help_text="Of the last one, among all.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant"], nulls_distinct=False, name="events_are_counted_once_a_tenant"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["-number"], name="last_number_of_events")]

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.sequence}"
