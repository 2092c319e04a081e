"""What stands behind an issued document, fixed once and signed."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models

from billing.models.invoices import Invoice
from billing.models.signing import SigningKey
from portal.core.tenants.models import Tenant


class Evidence(models.Model):
    """The manifest of a document's data files: fixed before the PDF is rendered, which prints its digest."""

    invoice = models.OneToOneField(Invoice, on_delete=models.PROTECT, related_name="evidence")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    document = models.BinaryField(help_text="`invoice.json`, as it was when it was fixed.")
    manifest = models.BinaryField(help_text="`manifest.json`: the SHA-256 of each data file.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the manifest.")
    key = models.ForeignKey(SigningKey, on_delete=models.PROTECT, related_name="+")
    signature = models.CharField(max_length=88, help_text="Base64, of the manifest.")

    class Meta:
        triggers: ClassVar = [
            pgtrigger.Protect(name="evidence_is_frozen", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return f"Evidence of {self.invoice}"
