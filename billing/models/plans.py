"""What usage costs: plans, their versions, the prices of meters, and who subscribes when.

Dates of versions and prices are civil dates: they begin at midnight in the zone of the tenant that
is charged, as its billing periods do.
"""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from billing.models.rated import Resource
from portal.audit import track
from portal.tenants.models import Tenant, same

SELECTORS = {
    "cluster": "clusters",
    "queue": "queues",
    "qos": "qoses",
    "priority_class": "priority_classes",
    "gpu_model": "gpu_models",
    "mig_profile": "mig_profiles",
    "state": "states",
}
"""The attributes of usage that a price may select by, in the order in which they are shown: the column of each."""


# Of a price that rated usage, only the end may move; of a version, nothing.
_GUARD_PRICE = """
IF EXISTS (SELECT 1 FROM billing_periodtotal WHERE price_id = OLD.id)
   AND (TG_OP = 'DELETE' OR (to_jsonb(NEW) - '{valid_until,position}'::text[])
                            IS DISTINCT FROM (to_jsonb(OLD) - '{valid_until,position}'::text[])) THEN
    RAISE EXCEPTION 'Usage has been rated by this price: end it and add a new one.';
END IF;
RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
"""

_GUARD_VERSION = """
IF (TG_OP = 'DELETE' OR to_jsonb(NEW) IS DISTINCT FROM to_jsonb(OLD))
   AND EXISTS (SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.id) THEN
    RAISE EXCEPTION 'Usage has been rated by this version of the plan: add a new version.';
END IF;
RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
"""


_GUARD_CURRENCY = """
IF NEW.currency <> OLD.currency AND EXISTS (
    SELECT 1 FROM billing_periodtotal t JOIN billing_price p ON p.id = t.price_id
    JOIN billing_planversion v ON v.id = p.version_id WHERE v.plan_id = OLD.id) THEN
    RAISE EXCEPTION 'Usage has been rated by this plan in %: make another plan.', OLD.currency;
END IF;
RETURN NEW;
"""


@track()
class Plan(models.Model):
    """A named offer in one currency."""

    name = models.SlugField(unique=True)
    currency = models.CharField(max_length=3, help_text="ISO 4217; all prices of the plan are in it.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(currency__regex="^[A-Z]{3}$"), name="plan_currency_is_iso_4217"
            )
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="used_currency_is_frozen",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                func=_GUARD_CURRENCY,
            )
        ]

    def __str__(self) -> str:
        return self.name


@track()
class PlanVersion(models.Model):
    """The plan's terms from a date until the next version. Once usage was rated by it, it never changes."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="versions")
    effective_from = models.DateField()
    charges = ArrayField(
        models.CharField(max_length=10, choices=Resource.choices),
        help_text="Resources that are charged; the others are waived: 'not charged by this plan'.",
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["plan", "effective_from"], name="plan_has_one_version_at_a_time")
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="used_version_is_frozen",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                func=_GUARD_VERSION,
            )
        ]

    def __str__(self) -> str:
        return f"{self.plan} from {self.effective_from}"


def _any(help_text: str) -> ArrayField[list[str], list[str]]:
    return ArrayField(models.TextField(), default=list, blank=True, help_text=help_text)


@track()
class Price(models.Model):
    """What one unit of a meter costs, for the usage that it selects, during [valid_from, valid_until).

    An empty selector matches everything. Where several prices match, the one with most selectors
    wins, then the one that stands first.
    """

    version = models.ForeignKey(PlanVersion, on_delete=models.PROTECT, related_name="prices")
    meter = models.CharField(max_length=20)
    resource = models.CharField(max_length=10, choices=Resource.choices, help_text="What the meter counts.")
    position = models.PositiveIntegerField(default=0)
    clusters = _any("Cluster names")
    queues = _any("Slurm partitions or queues")
    qoses = _any("QOS names")
    priority_classes = _any("Priority classes")
    gpu_models = _any("GPU models")
    mig_profiles = _any("MIG profiles")
    states = _any("Job states")
    specificity = models.PositiveSmallIntegerField(default=0, help_text="How many selectors are not empty.")
    selector = models.TextField(
        blank=True, help_text="The selectors in canonical form, as shown on invoices."
    )
    unit_price = models.DecimalField(max_digits=24, decimal_places=12, help_text="Per unit of the meter.")
    valid_from = models.DateField()
    valid_until = models.DateField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(unit_price__gte=0), name="price_is_not_negative"),
            models.CheckConstraint(condition=Q(resource__in=Resource.values), name="price_resource_is_known"),
            models.CheckConstraint(
                condition=Q(valid_until__isnull=True) | Q(valid_until__gt=F("valid_from")),
                name="price_ends_after_it_starts",
            ),
            ExclusionConstraint(
                name="one_price_per_selection_at_a_time",
                expressions=[
                    (same("version"), RangeOperators.OVERLAPS),
                    (
                        Func(
                            Func(F("resource"), Value(0), function="hashtextextended"),
                            Func(F("resource"), Value(0), function="hashtextextended"),
                            Value("[]"),
                            function="int8range",
                        ),
                        RangeOperators.OVERLAPS,
                    ),
                    (
                        Func(
                            Func(F("selector"), Value(0), function="hashtextextended"),
                            Func(F("selector"), Value(0), function="hashtextextended"),
                            Value("[]"),
                            function="int8range",
                        ),
                        RangeOperators.OVERLAPS,
                    ),
                    (
                        Func("valid_from", "valid_until", Value("[)"), function="daterange"),
                        RangeOperators.OVERLAPS,
                    ),
                ],
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="used_price_is_frozen",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                func=_GUARD_PRICE,
            )
        ]

    def __str__(self) -> str:
        return f"{self.meter} {self.selector or 'any'} at {self.unit_price.normalize():f}"


@track()
class Subscription(models.Model):
    """The plan that a tenant was on during [since, until)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="subscriptions")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="subscriptions")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)

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
