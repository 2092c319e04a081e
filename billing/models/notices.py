"""What is written to tenants: documents, receipts, what they owe; and whether their accounts are blocked for it."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from billing.models.invoices import Invoice
from billing.models.payment_attempts import PaymentAttempt
from clusters.models import Account
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class NoticeKind(models.TextChoices):
    REFUSED = "refused", gettext_lazy("Payment refused")
    CONFIRM = "confirm", gettext_lazy("The bank asks for a confirmation")
    TOP_UP = "top-up", gettext_lazy("Automatic top-up failed")
    CARD_GONE = "card-gone", gettext_lazy("Card removed")
    CARD_EXPIRES = "card-expires", gettext_lazy("Card expires soon")
    CARD_EXPIRED = "card-expired", gettext_lazy("Card expired")
    PAST_DUE = "past-due", gettext_lazy("Past due")
    REMINDER = "reminder", gettext_lazy("Reminder")
    ANNOUNCE = "announce", gettext_lazy("Suspension announced")
    SUSPENDED = "suspended", gettext_lazy("Suspended")
    RESTORED = "restored", gettext_lazy("Restored")
    INVOICE = "invoice", gettext_lazy("Invoice")
    CREDIT_NOTE = "credit-note", gettext_lazy("Credit note")
    RECEIPT = "receipt", gettext_lazy("Receipt")
    REFUND = "refund", gettext_lazy("Refund")
    QUOTA = "quota", gettext_lazy("Budget")
    QUOTA_ENDING = "quota-ending", gettext_lazy("Jobs that a budget ends")
    WASTE = "waste", gettext_lazy("Jobs that do not use their GPUs")


class NoticeState(models.TextChoices):
    WAITING = "waiting", "Waiting to be sent"
    SENDING = "sending", "Given to the mail server, which has not answered"
    SENT = "sent", "Sent"
    DRAFTED = "drafted", "Drafted: EMAIL_URL is not set"
    SKIPPED = "skipped", "Not needed any more"
    FAILED = "failed", "Could not be sent"


class OutgoingEmail(models.Model):
    """What is to be sent, by whom it was refused, and how it was sent."""

    state = models.CharField(max_length=8, choices=NoticeState.choices, default=NoticeState.WAITING)
    not_before = models.DateTimeField(help_text="Later than created where the mail server refused it.")
    tries = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, help_text="When it was given to the mail server, or drafted.")
    to = ArrayField(models.EmailField(), default=list)
    subject = models.TextField(blank=True)
    text = models.TextField(blank=True)
    html = models.TextField(blank=True)
    reason = models.TextField(blank=True, help_text="Why it was not sent, or not yet.")
    refused = models.JSONField(
        default=dict, blank=True, help_text="Addresses that the mail server refused, each with its reason."
    )

    class Meta:
        abstract = True


class Notice(OutgoingEmail):
    """A reason to write: a row of the transaction that causes it, sent at most once, kept as it was sent.

    Several of a tenant may go out as one e-mail: then each keeps all of its text.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="notices")
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, null=True, related_name="notices")
    attempt = models.ForeignKey(PaymentAttempt, on_delete=models.PROTECT, null=True, related_name="notices")
    kind = models.CharField(max_length=12, choices=NoticeKind.choices)
    step = models.PositiveSmallIntegerField(default=0, help_text="Which reminder.")
    key = models.CharField(max_length=100, unique=True, help_text="What it is about: written once.")
    details = models.JSONField(
        default=dict, help_text="What it says that cannot be read any more when it is sent."
    )
    created_at = models.DateTimeField()
    distributed = models.BooleanField(
        default=False, help_text="Those who get it later, and operators, have a delivery of it each."
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state__in=NoticeState.values) & Q(kind__in=NoticeKind.values),
                name="notice_is_of_a_known_kind",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["sending", "sent", "drafted"])
                | (Q(sent_at__isnull=False) & ~Q(subject="") & ~Q(text="")),
                name="notice_stays_as_sent",
            ),
        ]
        indexes: ClassVar = [
            models.Index("not_before", "id", condition=Q(state="waiting"), name="notices_to_send"),
            models.Index("tenant", "sent_at", name="notices_by_when_sent"),
            models.Index("id", condition=Q(state="waiting", distributed=False), name="notices_to_distribute"),
            GinIndex(fields=["to"], name="notices_by_address"),  # who take their data along
        ]

    def __str__(self) -> str:
        step = f" {self.step}" if self.step else ""
        return f"{self.get_kind_display()}{step}, {self.invoice or self.tenant}"


@track()
class Suspension(models.Model):
    """That a tenant's accounts are blocked for what it owes: begins once per crossing, ends when nothing demands it."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="suspensions")
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="+")
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, help_text="Since then its accounts are unblocked.")
    end_reason = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant"],
                condition=Q(ended_at__isnull=True),
                name="tenant_is_suspended_once_at_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"suspension of {self.tenant}"


DUNNING = "dunning"
"""Who blocks what is suspended, and the source of that reason."""


class BlockState(models.TextChoices):
    REQUESTED = "requested", "To be blocked"
    BLOCKED = "blocked", "Blocked"
    LIFTING = "lifting", "To be unblocked"
    LIFTED = "lifted", "Unblocked"


@track(exclude=["tries", "next_at"])
class SuspendedAccount(models.Model):
    """One account of a suspension: what is wanted of it, and what was read back from its scheduler."""

    suspension = models.ForeignKey(Suspension, on_delete=models.PROTECT, related_name="accounts")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=9, choices=BlockState.choices, default=BlockState.REQUESTED)
    error = models.TextField(blank=True, help_text="Why it could not be done yet; it is tried again.")
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["suspension", "account"], name="account_is_suspended_once_at_a_time"
            ),
            models.CheckConstraint(condition=Q(state__in=BlockState.values), name="block_state_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.account}: {self.get_state_display()}"

    @property
    def source(self) -> str:
        """Of the reason beneath the account's block: one for all suspensions."""
        return DUNNING

    @property
    def submits(self) -> bool:
        """Jobs can be submitted, and wait."""
        return False

    @property
    def why(self) -> str:
        """As the scheduler's history has it."""
        return f"{self.cause} is not paid"

    @property
    def cause(self) -> str:
        """What demands the block."""
        return str(self.suspension.invoice)
