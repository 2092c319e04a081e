"""What was paid."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q

from billing.models.invoices import Invoice
from billing.rules.money import Money
from portal.core.audit import track
from portal.core.tenants.models import Tenant


@track()
class Payment(models.Model):
    """Money that arrived for an invoice; a mistake is taken back by a negative one."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="payments")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    amount = models.BigIntegerField(help_text="Minor units of the invoice's currency.")
    received_on = models.DateField()
    reference = models.CharField(max_length=200, help_text="As on the bank statement.")
    recorded_by = models.CharField(max_length=200)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount=0), name="payment_is_not_nothing"),
            models.UniqueConstraint(
                fields=["invoice", "reference", "received_on", "amount"], name="payment_is_recorded_once"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["received_on"], name="payments_by_day")]
        triggers: ClassVar = [
            pgtrigger.Protect(name="payment_is_append_only", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        currency = self.invoice.currency
        return f"{self.reference}: {Money.from_minor(self.amount, currency).text} {currency}"
