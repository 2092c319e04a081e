"""What the gateway's books say beside ours: runs that compare them, what differs, payouts and what they are made of.

Amounts here are in the gateway's smallest units, as it tells them.
"""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q

from billing.models.invoices import Invoice
from billing.models.payment_attempts import PaymentAttempt
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class Reconciliation(models.Model):
    """One comparison of a window of the gateway's books with ours."""

    since = models.DateTimeField(
        help_text="From when on objects of the gateway were read, the overlap included."
    )
    until = models.DateTimeField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, help_text="None: it is at work, or was killed.")
    requested_by = models.CharField(max_length=200)
    error = models.TextField(blank=True, help_text="Why it compared nothing.")
    counts = models.JSONField(
        default=dict, help_text="Objects read, by kind; what was adopted, opened, resolved."
    )
    sums = models.JSONField(default=dict, help_text="By currency, what moved there and what is booked here.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(until__gt=models.F("since")), name="reconciled_window_is_not_empty"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["-began_at"], name="reconciliations_by_time")]

    def __str__(self) -> str:
        return f"{self.since:%Y-%m-%d %H:%M} – {self.until:%Y-%m-%d %H:%M}"


class DifferenceKind(models.TextChoices):
    """In what the gateway's books and ours differ."""

    MISSING_HERE = "missing-here", "Known there, not here"
    MISSING_THERE = "missing-there", "Known here, not there"
    AMOUNT = "amount", "Another amount"
    CURRENCY = "currency", "Another currency"
    STATUS = "status", "Another state"
    PAID_TWICE = "paid-twice", "One invoice paid twice"
    REFUND_WITHOUT_NOTE = "refund-without-note", "Refund without a credit note"
    DISPUTE_UNKNOWN = "dispute-unknown", "Dispute that is not known here"
    FEE = "fee", "Another fee"
    FEE_UNKNOWN = "fee-unknown", "Fee that is not told"
    PAYOUT_SUM = "payout-sum", "Payout that does not add up"
    MOVEMENT_UNKNOWN = "movement-unknown", "Money moved without a row here"


@track(exclude=("last_seen",))
class Difference(models.Model):
    """One difference, from when it was first seen until a run finds it gone. People may note what they know of it."""

    kind = models.CharField(max_length=20, choices=DifferenceKind.choices)
    object_id = models.CharField(max_length=120, help_text="At the gateway: pi_…, re_…, du_…, txn_…, po_….")
    about_at = models.DateTimeField(
        help_text="When that object was made: runs go back to it while it is open."
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, related_name="+")
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, null=True, related_name="+")
    ours = models.TextField(blank=True, help_text="What we have.")
    theirs = models.TextField(blank=True, help_text="What they have.")
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True, help_text="When a run found it gone.")
    note = models.TextField(blank=True)
    noted_by = models.CharField(max_length=200, blank=True)
    noted_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "object_id"], name="difference_is_kept_once"),
            models.CheckConstraint(
                condition=Q(kind__in=DifferenceKind.values), name="difference_kind_is_known"
            ),
        ]
        triggers: ClassVar = [pgtrigger.Protect(name="difference_is_kept", operation=pgtrigger.Delete)]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.object_id}"


class GatewayPayout(models.Model):
    """What the gateway paid into our bank account."""

    id = models.CharField(primary_key=True, max_length=100)
    amount = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    state = models.CharField(max_length=20)
    created_at = models.DateTimeField()
    arrives_on = models.DateField()
    itemised = models.BooleanField(
        default=True, help_text="False: the gateway does not say what it is made of."
    )

    class Meta:
        indexes: ClassVar = [models.Index(fields=["-created_at"], name="payouts_by_time")]

    def __str__(self) -> str:
        return self.id


class GatewayMovement(models.Model):
    """A line of the gateway's account of our money: a charge, a refund, a dispute, a fee, a payout."""

    id = models.CharField(primary_key=True, max_length=100)
    payout = models.ForeignKey(GatewayPayout, on_delete=models.PROTECT, null=True, related_name="movements")
    attempt = models.ForeignKey(PaymentAttempt, on_delete=models.PROTECT, null=True, related_name="movements")
    kind = models.CharField(max_length=60, help_text="The gateway's own word.")
    source = models.CharField(max_length=100, blank=True, help_text="ch_…, re_…, du_…, po_….")
    amount = models.BigIntegerField()
    fee = models.BigIntegerField()
    net = models.BigIntegerField()
    currency = models.CharField(max_length=3, help_text="In which it settled, which may not be the charge's.")
    created_at = models.DateTimeField()
    foreign = models.BooleanField(default=False, help_text="Of something else that shares the account.")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["created_at"], name="movements_by_time")]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"
