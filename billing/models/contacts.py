"""Who gets which e-mails of a tenant, besides its billing e-mail."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.core.audit import track
from portal.core.tenants.models import Tenant

TOPICS = ("invoices", "reminders", "receipts", "budgets")
"""The columns of a contact, one for each kind of e-mail."""


@track(personal=["email"])
class BillingContact(models.Model):
    """An address that gets some kinds of a tenant's e-mails. Kinds that no contact gets go where they went before."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="billing_contacts")
    email = models.EmailField()
    invoices = models.BooleanField(default=False, help_text="Invoices and credit notes.")
    reminders = models.BooleanField(
        default=False, help_text="Reminders, refused payments, cards, suspensions."
    )
    receipts = models.BooleanField(default=False, help_text="Receipts and refunds.")
    budgets = models.BooleanField(default=False, help_text="Budgets that name no members.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "email"], name="billing_contact_is_named_once"),
            models.CheckConstraint(
                condition=Q(invoices=True) | Q(reminders=True) | Q(receipts=True) | Q(budgets=True),
                name="billing_contact_gets_something",
            ),
        ]

    def __str__(self) -> str:
        return self.email

    @property
    def topics(self) -> tuple[str, ...]:
        """What it gets, in the order of the columns."""
        return tuple(topic for topic in TOPICS if getattr(self, topic))
