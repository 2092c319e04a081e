"""What a version of a plan says beside its prices: allowances, flat fees, a commitment, discounts.

All of them are told per billing period, and count by the seconds for which the tenant is on the version.
"""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from billing.models.plans import RATED_BY, PlanVersion
from portal.core.audit import track
from portal.core.tenants.models import Tenant, same

# Of one tenant's own term: whether a line states it, on an invoice of the tenant or of who pays for it. A
# commitment's line stands under the plan's, and an allowance has none: it is in the terms of the use that it includes.
_BEGINS = "OLD.valid_from::timestamp AT TIME ZONE s.timezone"
_STATED = {
    "fee": "l.term_id = OLD.id",
    "discount": "l.term_id = OLD.id",
    "commitment": "l.term_id IN (SELECT id FROM billing_commitment WHERE version_id = OLD.version_id)",
    "allowance": """l.price_id IN (SELECT p.id FROM billing_price p JOIN billing_allowance a ON a.id = p.allowance_id
        WHERE a.version_id = OLD.version_id AND a.name = OLD.name)""",
}


def _frozen(kind: str) -> pgtrigger.Trigger:
    """What was used or billed keeps its terms; only the end of what has dates may move."""
    lines = "usage" if kind == "allowance" else kind
    return pgtrigger.Trigger(
        name="used_terms_are_frozen",
        when=pgtrigger.Before,
        operation=pgtrigger.Update | pgtrigger.Delete,
        func=f"""
IF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN
    RETURN NEW;
END IF;
IF OLD.tenant_id IS NULL
   AND ({RATED_BY.format(version="OLD.version_id")}
        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = '{kind}' AND term_id = OLD.id)) THEN
    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';
END IF;
IF OLD.tenant_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM billing_invoiceline l
    JOIN billing_billingperiod s ON s.id = l.service_period_id
    WHERE s.tenant_id = OLD.tenant_id AND l.kind = '{lines}' AND s."end" > {_BEGINS}
      AND {_STATED[kind]}) THEN
    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';
END IF;
RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
""",  # noqa: S608 - built from constants
    )


def _hashed(column: str) -> Func:
    """A text as a one-value range, as `same` has it of a number."""
    key = Func(F(column), Value(0), function="hashtextextended")
    return Func(key, key, Value("[]"), function="int8range")


def _dated(kind: str, *, named: bool = True) -> list[models.BaseConstraint]:
    """A tenant's own has dates, and holds alone; the plan's own has none, and holds as long as its version."""
    names = [(_hashed("name"), RangeOperators.OVERLAPS)] if named else []
    return [
        models.CheckConstraint(
            condition=Q(tenant__isnull=True, valid_from__isnull=True, valid_until__isnull=True)
            | Q(tenant__isnull=False, valid_from__isnull=False),
            name=f"{kind}_of_one_tenant_has_dates",
        ),
        models.CheckConstraint(
            condition=Q(valid_until__isnull=True) | Q(valid_until__gt=F("valid_from")),
            name=f"{kind}_ends_after_it_starts",
        ),
        _alone(kind, *names),
    ]


def _alone(kind: str, *names: tuple[Func, str]) -> ExclusionConstraint:
    return ExclusionConstraint(
        name=f"tenant_has_one_own_{kind}_at_a_time",
        expressions=[
            (same("version"), RangeOperators.OVERLAPS),
            (same("tenant"), RangeOperators.OVERLAPS),
            *names,
            (Func("valid_from", "valid_until", Value("[)"), function="daterange"), RangeOperators.OVERLAPS),
        ],
        condition=Q(tenant__isnull=False),
        violation_error_message=(
            f"The tenant has a {kind} of its own in these days already: end the earlier one where the later one begins."
        ),
    )


class Term(models.Model):
    """A term of a version, by its name: for all who are on it, or for one tenant in the place of that of its name."""

    version = models.ForeignKey(PlanVersion, on_delete=models.PROTECT, related_name="%(class)ss")
    name = models.CharField(max_length=100, help_text="As an invoice calls it.")
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="For this tenant alone, in the place of the plan's of that name.",
    )
    valid_from = models.DateField(
        null=True, blank=True, help_text="The first day of a tenant's own; the plan's holds all along."
    )
    valid_until = models.DateField(null=True, blank=True, help_text="The day on which it has ended.")

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


@track()
class Allowance(Term):
    """Units that are included in each period, for the prices that name it."""

    hours = models.DecimalField(max_digits=18, decimal_places=6, help_text="Units of the meter per period.")
    rollover = models.BooleanField(
        default=False, help_text="What a period leaves is good for the next one, and used first there."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["version", "name"],
                condition=Q(tenant__isnull=True),
                name="allowance_has_its_name_alone",
            ),
            models.CheckConstraint(
                condition=Q(hours__gt=0) | Q(hours=0, tenant__isnull=False), name="allowance_is_above_zero"
            ),
            *_dated("allowance"),
        ]
        triggers: ClassVar = [_frozen("allowance")]


@track()
class Fee(Term):
    """A flat amount per period."""

    amount = models.DecimalField(max_digits=24, decimal_places=12, help_text="Per period, in major units.")
    in_advance = models.BooleanField(
        default=False, help_text="Billed with the invoice before its period rather than after it."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["version", "name"], condition=Q(tenant__isnull=True), name="fee_has_its_name_alone"
            ),
            models.CheckConstraint(condition=Q(amount__gte=0), name="fee_is_not_negative"),
            *_dated("fee"),
        ]
        triggers: ClassVar = [_frozen("fee")]


@track()
class Commitment(Term):
    """What the use of a period comes to at least; what lies above it counts `overage_factor` times."""

    amount = models.DecimalField(max_digits=24, decimal_places=12, help_text="Per period, in major units.")
    overage_factor = models.DecimalField(max_digits=8, decimal_places=4, default=1)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["version"], condition=Q(tenant__isnull=True), name="version_has_one_commitment"
            ),
            models.CheckConstraint(
                condition=Q(overage_factor__gte=1) & (Q(amount__gt=0) | Q(amount=0, tenant__isnull=False)),
                name="commitment_is_above_zero",
            ),
            *_dated("commitment", named=False),
        ]
        triggers: ClassVar = [_frozen("commitment")]


@track()
class Discount(Term):
    """A part, or an amount, off all that the version charges for a period, during [valid_from, valid_until)."""

    percent = models.DecimalField(max_digits=7, decimal_places=4, null=True, blank=True)
    amount = models.DecimalField(
        max_digits=24, decimal_places=12, null=True, blank=True, help_text="Per period, in major units."
    )
    valid_from = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["version", "name", "valid_from"],
                condition=Q(tenant__isnull=True),
                name="discount_has_its_name_alone",
            ),
            models.CheckConstraint(
                condition=Q(percent__gt=0, percent__lte=100, amount__isnull=True)
                | Q(percent__isnull=True, amount__gt=0)
                | Q(percent=0, amount__isnull=True, tenant__isnull=False),
                name="discount_is_a_percentage_or_an_amount",
            ),
            models.CheckConstraint(
                condition=Q(valid_until__isnull=True) | Q(valid_until__gt=F("valid_from")),
                name="discount_ends_after_it_starts",
            ),
            _alone("discount", (_hashed("name"), RangeOperators.OVERLAPS)),
        ]
        triggers: ClassVar = [_frozen("discount")]
