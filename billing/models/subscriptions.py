"""Which tenant is on which plan, when."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from billing.models.plans import Plan
from portal.core.audit import track
from portal.core.tenants.models import Tenant, same


@track(exclude=("replaced_plans",))  # the plan that it was is in the entry itself
class Subscription(models.Model):
    """The plan that a tenant was on during [since, until)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="subscriptions")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="subscriptions")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)
    replaced_plans = ArrayField(
        models.BigIntegerField(),
        default=list,
        blank=True,
        editable=False,
        help_text="Ids of plans that it took the place of on its first day. The tenant goes on reading them, since "
        "usage has their prices until it is rated again.",
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(until__isnull=True) | Q(until__gt=F("since")),
                name="subscription_ends_after_it_starts",
            ),
            ExclusionConstraint(
                name="tenant_has_one_plan_at_a_time",
                expressions=[
                    (same("tenant"), RangeOperators.OVERLAPS),
                    (Func("since", "until", Value("[)"), function="tstzrange"), RangeOperators.OVERLAPS),
                ],
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} on {self.plan}"
