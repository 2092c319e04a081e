"""Lines that somebody adds by hand: what no meter counts and no plan says."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet

from billing.models import guards
from billing.models.invoices import InvoiceLine, InvoiceState, LineKind
from billing.rules.money import Money
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class ManualLineQuerySet(QuerySet["ManualLine"]):
    """Manual lines by whether an invoice holds them."""

    def pending(self) -> ManualLineQuerySet:
        """Those that no issued invoice holds; one that stood on a void invoice is pending again."""
        billed = InvoiceLine.objects.filter(
            kind=LineKind.MANUAL, term_id=OuterRef("pk"), invoice__state=InvoiceState.ISSUED
        )
        return self.filter(~Exists(billed))


@track()
class ManualLine(models.Model):
    """An amount before tax for the tenant's next invoice; below zero it takes off. Never changed, removed at most."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="manual_lines")
    description = models.CharField(max_length=400, help_text="As it stands on the invoice.")
    amount = models.BigIntegerField(help_text="Minor units, before tax.")
    currency = models.CharField(max_length=3)
    reason = models.TextField(help_text="Kept here; it does not stand on the invoice.")
    by = models.CharField(max_length=200)
    added_on = models.DateField()

    objects = ManualLineQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount=0), name="manual_line_is_not_nothing")
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="manual_line_is_kept",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                func=guards.MANUAL,
            )
        ]

    def __str__(self) -> str:
        return f"{self.description}: {Money.from_minor(self.amount, self.currency).text} {self.currency}"
