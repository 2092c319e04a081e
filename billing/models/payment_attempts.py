"""Moving money through a gateway: each row stands before its call, and says afterwards what came of it.

A row is committed with the exact parameters of its call, whose idempotency key is made of the row.
Amounts are in minor units of our invoices; what the gateway counts in is in `params`.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q

from billing.models.invoices import Invoice
from billing.models.payments import Payment
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class MethodState(models.TextChoices):
    USABLE = "usable", "Usable"
    REFUSED = "refused", "Refused for good by its bank"
    GONE = "gone", "Removed"


@track(personal=["params"])
class BillingAccount(models.Model):
    """A tenant as the gateway knows it."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, related_name="billing_account")
    customer = models.CharField(max_length=100, null=True, unique=True, help_text="Its id at the gateway.")
    turn = models.PositiveIntegerField(default=1, help_text="Counts customers: one was deleted there.")
    params = models.JSONField(default=dict)
    requested_at = models.DateTimeField(null=True)
    automatic = models.BooleanField(
        default=True, help_text="Invoices that are due are charged by themselves."
    )

    def __str__(self) -> str:
        return f"{self.tenant} at the gateway"


@track(personal=["brand", "last4", "exp_month", "exp_year", "fingerprint"])
class SavedMethod(models.Model):
    """A card or bank account that the tenant saved at the gateway: what may be shown of it."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="saved_methods")
    external_id = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20)
    brand = models.CharField(max_length=40, blank=True)
    last4 = models.CharField(max_length=4, blank=True)
    exp_month = models.PositiveSmallIntegerField(null=True)
    exp_year = models.PositiveSmallIntegerField(null=True)
    fingerprint = models.CharField(max_length=100, blank=True)
    state = models.CharField(max_length=10, choices=MethodState.choices, default=MethodState.USABLE)
    preferred = models.BooleanField(default=False, help_text="The one that is charged, and no other.")
    added_at = models.DateTimeField()  # or renewed by its network: older refusals count no more

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant"], condition=Q(preferred=True), name="tenant_prefers_one_method"
            ),
            models.CheckConstraint(condition=Q(state__in=MethodState.values), name="method_state_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.brand or self.kind} …{self.last4}"


class AttemptState(models.TextChoices):
    """How one attempt to be paid stands; it only moves on, as `payments.sync` ranks them and a trigger holds."""

    READY = "ready", "About to be sent"
    OFFERED = "offered", "A page to pay on is open"
    UNKNOWN = "unknown", "Sent, and not answered"
    PROCESSING = "processing", "Under way"
    NEEDS_ACTION = "needs_action", "Waits for its owner's confirmation"
    NEEDS_REVIEW = "needs_review", "To be looked at"
    SUCCEEDED = "succeeded", "Paid"
    FAILED = "failed", "Refused"
    CANCELED = "canceled", "Not made"


IN_FLIGHT = (
    AttemptState.READY,
    AttemptState.UNKNOWN,
    AttemptState.PROCESSING,
    AttemptState.NEEDS_REVIEW,
)
"""States in which money may yet come: there is no second attempt for the same invoice beside one of these."""


UNDER_WAY = Q(state__in=IN_FLIGHT) | Q(state=AttemptState.OFFERED, page_used=True)
"""Attempts by which money may yet come, by a charge or by a page that was used and whose charge nobody has read:
nothing else is charged, offered, or made void beside one. Columns of the attempt alone, since the role of tenants'
pages does not see the pages to pay on."""


_FORWARD = """
IF OLD.state = 'succeeded' AND NEW.state <> 'succeeded' THEN
    RAISE EXCEPTION 'A payment that succeeded stays so: what is given back is a refund.';
END IF;
IF (NEW.id, NEW.tenant_id, NEW.invoice_id, NEW.top_up_id, NEW.amount, NEW.currency) IS DISTINCT FROM
   (OLD.id, OLD.tenant_id, OLD.invoice_id, OLD.top_up_id, OLD.amount, OLD.currency)
   OR (OLD.external_id IS NOT NULL AND NEW.external_id IS DISTINCT FROM OLD.external_id)
   OR (OLD.sent_at IS NOT NULL AND NEW.params IS DISTINCT FROM OLD.params) THEN
    RAISE EXCEPTION 'What an attempt is for never changes: make another one.';
END IF;
RETURN NEW;
"""


@track(exclude=["checked_at"], personal=["requested_by", "paid_with"])
class PaymentAttempt(models.Model):
    """One attempt to be paid, for one invoice or one top-up: at most one PaymentIntent."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="payment_attempts")
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, null=True, related_name="attempts")
    top_up = models.ForeignKey("billing.TopUp", on_delete=models.PROTECT, null=True, related_name="attempts")
    amount = models.BigIntegerField(help_text="Minor units of the invoice's currency.")
    currency = models.CharField(max_length=3)
    method = models.ForeignKey(SavedMethod, on_delete=models.PROTECT, null=True, related_name="+")
    params = models.JSONField(default=dict, help_text="Of its call, as they are sent.")
    state = models.CharField(max_length=12, choices=AttemptState.choices, default=AttemptState.READY)
    external_id = models.CharField(max_length=100, null=True, unique=True)
    code = models.CharField(max_length=100, blank=True, help_text="The bank's word for a refusal.")
    advice = models.CharField(max_length=100, blank=True)
    message = models.TextField(blank=True, help_text="For the person who pays.")
    fee = models.BigIntegerField(null=True, help_text="What the gateway kept, in its smallest units.")
    fee_currency = models.CharField(
        max_length=3, blank=True, help_text="In which it settled; it may not be the charge's."
    )
    resend = models.BooleanField(default=True, help_text="False: the same key would bring the same failure.")
    version = models.PositiveIntegerField(
        default=0, help_text="Counts changes: what was read before the last one is not written over it."
    )
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    checked_at = models.DateTimeField(null=True, help_text="When the gateway was last asked how it stands.")
    page_used = models.BooleanField(
        default=False, help_text="Somebody came back from its page as having paid, or the gateway says so."
    )
    requested_by = models.CharField(
        max_length=200,
        blank=True,
        help_text="Who had the saved card charged. Empty: it was charged by itself.",
    )
    paid_with = models.CharField(
        max_length=80, blank=True, help_text="As the gateway says it: Visa ending in 4242."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["invoice"], condition=Q(state__in=IN_FLIGHT), name="invoice_has_one_attempt_in_flight"
            ),
            models.UniqueConstraint(
                fields=["top_up"], condition=Q(state__in=IN_FLIGHT), name="top_up_has_one_attempt_in_flight"
            ),
            models.CheckConstraint(
                condition=Q(invoice__isnull=False, top_up__isnull=True)
                | Q(invoice__isnull=True, top_up__isnull=False),
                name="attempt_is_for_an_invoice_or_a_top_up",
            ),
            models.CheckConstraint(condition=Q(amount__gt=0), name="attempt_asks_for_something"),
            models.CheckConstraint(condition=Q(state__in=AttemptState.values), name="attempt_state_is_known"),
            models.CheckConstraint(
                condition=~Q(state="succeeded") | Q(external_id__isnull=False),
                name="paid_attempt_is_known_there",
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="attempt_only_moves_forward",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                func=_FORWARD,
            ),
            pgtrigger.Protect(name="attempt_is_kept", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{self.invoice or self.top_up}: {self.get_state_display()}"


class CheckoutState(models.TextChoices):
    READY = "ready", "About to be opened"
    UNKNOWN = "unknown", "Asked for, and not answered"
    OPEN = "open", "Open"
    COMPLETE = "complete", "Used"
    EXPIRED = "expired", "Closed"


OPEN_CHECKOUTS = (CheckoutState.READY, CheckoutState.UNKNOWN, CheckoutState.OPEN)
"""States in which somebody may pay on the page."""


@track(exclude=["checked_at", "returns"], personal=["requested_by"])
class CheckoutSession(models.Model):
    """A hosted page for paying one invoice, or for saving a card: one Checkout session.

    Or the page of a bank that asks its customer to confirm a charge of the saved card: that charge.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    attempt = models.OneToOneField(
        PaymentAttempt,
        on_delete=models.PROTECT,
        null=True,
        related_name="checkout",
        help_text="What is paid there; none: a card is saved.",
    )
    params = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=CheckoutState.choices, default=CheckoutState.READY)
    external_id = models.CharField(max_length=200, null=True, unique=True)
    url = models.TextField(blank=True)
    created_at = models.DateTimeField()
    checked_at = models.DateTimeField(null=True, help_text="When the gateway was last asked how it stands.")
    returns = models.PositiveIntegerField(default=0, help_text="How often somebody came back from it.")
    confirms = models.BooleanField(
        default=False, help_text="It is the bank's page of a charge, and its id the charge's."
    )
    expires_at = models.DateTimeField(null=True)
    requested_by = models.CharField(max_length=200)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state__in=CheckoutState.values), name="checkout_state_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"page of {self.tenant}"


class RefundState(models.TextChoices):
    READY = "ready", "About to be sent"
    UNKNOWN = "unknown", "Sent, and not answered"
    PENDING = "pending", "Under way"
    SUCCEEDED = "succeeded", "Given back"
    FAILED = "failed", "Came back: still owed"
    CANCELED = "canceled", "Not made"


REFUNDS_UNDER_WAY = (RefundState.READY, RefundState.UNKNOWN, RefundState.PENDING)
EFFECTIVE_REFUNDS = (*REFUNDS_UNDER_WAY, RefundState.SUCCEEDED)
"""States in which the money is, or may be, on its way back."""


UNEXPLAINED = Q(
    credit_note=None, resolution="", state__in=EFFECTIVE_REFUNDS, attempt__state=AttemptState.SUCCEEDED
)
"""Refunds of booked payments that were made at the gateway, while nobody said here what for. What they gave back is
owed again, unless more was paid than was owed: until a credit note says otherwise, or somebody that it stays owed,
nothing is charged."""


@track(exclude=["checked_at"])
class PaymentRefund(models.Model):
    """Money given back to where it came from, below a credit note; one made at the gateway has none."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    attempt = models.ForeignKey(PaymentAttempt, on_delete=models.PROTECT, related_name="refunds")
    credit_note = models.ForeignKey(Invoice, on_delete=models.PROTECT, null=True, related_name="refunds")
    amount = models.BigIntegerField()
    params = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=RefundState.choices, default=RefundState.READY)
    external_id = models.CharField(max_length=100, null=True, unique=True)
    reason = models.TextField(blank=True, help_text="Of a failure.")
    resend = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    checked_at = models.DateTimeField(null=True, help_text="When the gateway was last asked how it stands.")
    requested_by = models.CharField(max_length=200)
    resolution = models.TextField(blank=True, help_text="Who says why it needs no credit note.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(amount__gt=0), name="refund_gives_something"),
            models.CheckConstraint(condition=Q(state__in=RefundState.values), name="refund_state_is_known"),
        ]
        triggers: ClassVar = [pgtrigger.Protect(name="refund_is_kept", operation=pgtrigger.Delete)]

    def __str__(self) -> str:
        return f"refund of {self.attempt.invoice}"


class DisputeState(models.TextChoices):
    INQUIRY = "inquiry", "Asked about"  # the bank only asks, and has taken nothing yet
    OPEN = "open", "Disputed"
    WON = "won", "Won"
    LOST = "lost", "Charged back"


UNDECIDED = (DisputeState.INQUIRY, DisputeState.OPEN)


@track()
class PaymentDispute(models.Model):
    """A payer took a payment up with the bank."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    attempt = models.ForeignKey(PaymentAttempt, on_delete=models.PROTECT, related_name="disputes")
    external_id = models.CharField(max_length=100, unique=True)
    amount = models.BigIntegerField()
    state = models.CharField(max_length=10, choices=DisputeState.choices)
    reason = models.CharField(max_length=100, blank=True)
    fee = models.BigIntegerField(default=0)
    opened_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(state__in=DisputeState.values), name="dispute_state_is_known")
        ]

    def __str__(self) -> str:
        return f"dispute of {self.attempt.invoice}"


class MovedMoney(models.Model):
    """Which payment row an attempt, a refund or a lost dispute became: each at most one, and one that takes it back."""

    payment = models.OneToOneField(Payment, on_delete=models.PROTECT, related_name="moved")
    attempt = models.ForeignKey(PaymentAttempt, on_delete=models.PROTECT, related_name="moved")
    cause = models.CharField(
        max_length=120, unique=True, help_text="pi_…, re_… or dp_…, and what became of it."
    )

    def __str__(self) -> str:
        return self.cause


class MovedCredit(models.Model):
    """What a refund or a dispute did to the credit of a top-up: each cause at most once, and what takes it back."""

    attempt = models.ForeignKey(PaymentAttempt, on_delete=models.PROTECT, related_name="moved_credit")
    cause = models.CharField(max_length=120, unique=True, help_text="re_… or du_…, and what became of it.")
    amount = models.BigIntegerField(help_text="Of the wallet's smallest units; below zero: taken back.")
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount=0), name="moved_credit_is_not_nothing"),
        ]
        triggers: ClassVar = [
            pgtrigger.Protect(
                name="moved_credit_is_append_only", operation=pgtrigger.Update | pgtrigger.Delete
            )
        ]

    def __str__(self) -> str:
        return self.cause
