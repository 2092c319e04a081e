"""Links by which one invoice is seen and paid without signing in."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from billing.models.invoices import Invoice
from portal.core.audit import track
from portal.core.tenants.models import Tenant


@track(personal=["maker", "revoked_by"])
class PaymentLink(models.Model):
    """Whoever has the link, which is signed with SECRET_KEY, sees and pays this invoice alone, until it ends."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="payment_links")
    maker = models.CharField(
        max_length=200, blank=True, help_text="Who made it. Empty: a reminder, or somebody who was erased."
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="payment_link_ends_after_it_was_made"
            ),
        ]
        indexes: ClassVar = [models.Index("invoice", "expires_at", name="payment_links_of_invoice")]

    def __str__(self) -> str:
        return f"payment link of {self.invoice}"
