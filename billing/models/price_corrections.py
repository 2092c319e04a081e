"""What prices came to before they were corrected."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q

from billing.models.plans import Price
from portal.core.audit import track


@track()
class PriceCorrection(models.Model):
    """What a price came to until it was corrected, with effect for all of its days.

    Rated usage names the price alone, so none of it changes. `number` is one of the series that rated rows are numbered
    by: a document that reaches as far states the new amount, one that does not the amount here.
    """

    number = models.BigIntegerField(unique=True)
    price = models.ForeignKey(Price, on_delete=models.PROTECT, related_name="corrections")
    model = models.CharField(max_length=10, help_text="Until then, as the two columns after it.")
    scale = models.JSONField()
    unit_price = models.DecimalField(max_digits=24, decimal_places=12)
    reason = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(reason=""), name="price_correction_has_a_reason")
        ]
        triggers: ClassVar = [
            pgtrigger.Protect(name="price_correction_stays", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return f"{self.unit_price.normalize():f}, corrected: {self.reason}"
