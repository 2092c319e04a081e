"""Who pays for whom, and when."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import pgtrigger
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from billing.models import guards
from portal.core.audit import track
from portal.core.tenants.models import Tenant, same


@track()
class Payer(models.Model):
    """What `tenant` uses during [since, until) goes on the invoices of `payer`. Never deleted: it is ended.

    Days of the tenant's zone. One that ends on the day on which it begins never held.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="payers")
    payer = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="pays_for", verbose_name="paid by"
    )
    since = models.DateField(help_text="Its first day, in the tenant's zone.")
    until = models.DateField(null=True, blank=True, help_text="The day from which it no longer pays.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(tenant=F("payer")), name="payer_is_another_tenant"),
            models.CheckConstraint(
                condition=Q(until__isnull=True) | Q(until__gte=F("since")),
                name="payer_ends_no_earlier_than_it_begins",
            ),
            ExclusionConstraint(
                name="tenant_has_one_payer_at_a_time",
                expressions=[
                    (same("tenant"), RangeOperators.OVERLAPS),
                    (Func("since", "until", Value("[)"), function="daterange"), RangeOperators.OVERLAPS),
                ],
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="payer_has_no_payer_and_is_kept",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.Update | pgtrigger.Delete,
                func=guards.PAYER,
            )
        ]

    def __str__(self) -> str:
        return f"{self.payer} for {self.tenant}"

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        """For forms: one payer at a time is left to `third_party_payers.pay_for`, which ends whoever pays first."""
        super().validate_constraints({*(exclude or ()), "tenant"})
