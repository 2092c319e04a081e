"""What usage costs: plans, their versions, the prices of meters, and who subscribes when.

Dates of versions and prices are civil dates: they begin at midnight in the zone of the billing period
of the tenant that is charged, as that period does.
"""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

import pgtrigger
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from billing.models.rated import Resource
from billing.rules.meters import MAX_PRICE_DECIMALS, AnyMeter, PerUnit, PriceModel, meter_of
from billing.rules.money import TOKENS, rounded_text
from billing.rules.tiers import Scale, as_terms, first_price, of_terms
from portal.core.audit import track
from portal.core.tenants.models import Tenant, same

SELECTORS = {
    "cluster": "clusters",
    "queue": "queues",
    "qos": "qoses",
    "priority_class": "priority_classes",
    "gpu_model": "gpu_models",
    "mig_profile": "mig_profiles",
    "state": "states",
    "use": "uses",
    "dimension": "dimensions",
}
"""What a price may select usage by, in the order in which it is shown: the column of each.

`use` tells apart the seconds of a run, which `clusters` knows by the hour, and `dimension`, as `model=large`, the sums
of a declared meter; the others are attributes of the run.
"""

OF_SUMS = ("cluster", "dimension")
"""Those that sums have, too."""

USES = ("busy", "idle", "unknown")
"""Device-seconds that telemetry saw working or standing still, and those that it did not see."""


# Of a price that rated usage, only the end may move, and what it comes to where a correction keeps what it came to; of
# a version, nothing.
_GUARD_PRICE = """
IF EXISTS (SELECT 1 FROM billing_periodtotal WHERE price_id = OLD.id)
   AND (TG_OP = 'DELETE' OR (to_jsonb(NEW) - '{valid_until,position}'::text[])
                            IS DISTINCT FROM (to_jsonb(OLD) - '{valid_until,position}'::text[])) THEN
    IF TG_OP = 'DELETE' OR NEW.corrected_through <= OLD.corrected_through
       OR (to_jsonb(NEW) - '{valid_until,position,unit_price,model,scale,corrected_through}'::text[])
          IS DISTINCT FROM (to_jsonb(OLD) - '{valid_until,position,unit_price,model,scale,corrected_through}'::text[])
       OR NOT EXISTS (SELECT 1 FROM billing_pricecorrection c
                      WHERE c.price_id = OLD.id AND c.number = NEW.corrected_through
                        AND (c.unit_price, c.model, c.scale) = (OLD.unit_price, OLD.model, OLD.scale)) THEN
        RAISE EXCEPTION 'Usage has been rated by this price: correct its amount, or end it and add a new one.';
    END IF;
END IF;
RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
"""

# Without a unit of usage a fee is billed all the same.
_BILLED = """
SELECT 1 FROM billing_planversion v
JOIN (SELECT 'fee' AS kind, id, version_id FROM billing_fee
      UNION ALL SELECT 'commitment', id, version_id FROM billing_commitment
      UNION ALL SELECT 'discount', id, version_id FROM billing_discount) term ON term.version_id = v.id
JOIN billing_invoiceline line ON line.kind = term.kind AND line.term_id = term.id
"""

# No index says which rows a version rated: it would cost each of them. Nobody was ever on most plans that change, and
# nothing is rated by a version before it begins, whatever the zone: so no month is read, or those since then.
# What a version does not charge has no rated row, but for GPUs: it counts as used by jobs without any, which ran while
# it held for their tenant. Jobs are found by when they ended, and the few that have not by an index of their own.
_FREE = """
    SELECT 1 FROM (
        SELECT s.tenant_id,
               greatest(extract(epoch FROM s.since)::bigint, day_start(v.effective_from, z.timezone)) AS since,
               least(extract(epoch FROM s.until)::bigint, (
                   SELECT day_start(min(n.effective_from), z.timezone) FROM billing_planversion n
                   WHERE n.plan_id = v.plan_id AND n.effective_from > v.effective_from), 9223372036854775807) AS until
        FROM billing_planversion v JOIN billing_subscription s ON s.plan_id = v.plan_id
        JOIN (SELECT DISTINCT tenant_id, timezone FROM billing_billingperiod) z ON z.tenant_id = s.tenant_id
        WHERE v.id = {version}
    ) held CROSS JOIN LATERAL (
        SELECT j.started, j.ended AS finish, j.suspended FROM billing_ratedjob j
        WHERE j.tenant_id = held.tenant_id AND j.gpus = 0 AND j.started < held.until AND j.ended > held.since
        UNION ALL
        SELECT j.started, j.seen_until, j.suspended FROM billing_ratedjob j
        WHERE j.tenant_id = held.tenant_id AND j.gpus = 0 AND j.started < held.until AND j.ended IS NULL
    ) job WHERE held_seconds(held.since, held.until, job.started, job.finish, job.suspended) > 0"""

RATED_BY = f"""EXISTS (
    SELECT 1 FROM billing_planversion v JOIN audit_entry s
        ON s."table" = 'billing_subscription' AND s.after ->> 'plan_id' = v.plan_id::text WHERE v.id = {{version}}
) AND (EXISTS (
    SELECT 1 FROM billing_ratedusage WHERE version_id = {{version}} AND service_month >= (
        SELECT date_trunc('month', (effective_from - 2)::timestamp)::date FROM billing_planversion
        WHERE id = {{version}}))
    OR EXISTS ({_FREE}))"""  # noqa: S608 - built from constants
"""Whether usage was rated by a version, taken back since or not, or is free by it; `version` is its id."""

_GUARD_VERSION = f"""
IF (TG_OP = 'DELETE' OR to_jsonb(NEW) IS DISTINCT FROM to_jsonb(OLD))
   AND ({RATED_BY.format(version="OLD.id")}
        OR EXISTS ({_BILLED} WHERE v.id = OLD.id)) THEN
    RAISE EXCEPTION 'Usage has been rated by this version of the plan, or a line billed: add a new version.';
END IF;
RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
"""


_GUARD_CURRENCY = f"""
IF (NEW.currency, NEW.settles) <> (OLD.currency, OLD.settles) AND (EXISTS (
        SELECT 1 FROM billing_periodtotal t JOIN billing_price p ON p.id = t.price_id
        JOIN billing_planversion v ON v.id = p.version_id WHERE v.plan_id = OLD.id)
    OR EXISTS ({_BILLED} WHERE v.plan_id = OLD.id)) THEN
    RAISE EXCEPTION 'Usage has been rated by this plan, or a line billed, in %, by %: make another plan.',
        OLD.currency, OLD.settles;
END IF;
RETURN NEW;
"""  # noqa: S608 - built from constants


class Settles(models.TextChoices):
    """What pays for usage under a plan."""

    INVOICE = "invoice", "The period's invoice"
    WALLET = "wallet", "The wallet, as it is used; there is no invoice"
    WALLET_FIRST = "wallet-first", "The wallet, when the invoice is issued; the rest is to be paid"


BY_INVOICE = (Settles.INVOICE, Settles.WALLET_FIRST)
"""Plans whose use stands on invoices."""


@track()
class Plan(models.Model):
    """A named offer in one currency, or in tokens."""

    name = models.SlugField(unique=True)
    currency = models.CharField(
        max_length=3, help_text="ISO 4217, or TOK for tokens; all prices of the plan are in it."
    )
    settles = models.CharField(max_length=12, choices=Settles.choices, default=Settles.INVOICE)
    public = models.BooleanField(
        default=False, help_text="People sign up for it, and owners change to it from another public plan."
    )
    starting_credit = models.BigIntegerField(
        default=0, help_text="Given once to each person who signs up, in smallest units; a wallet pays by it."
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(currency__regex="^[A-Z]{3}$"), name="plan_currency_is_iso_4217"
            ),
            models.CheckConstraint(condition=Q(settles__in=Settles.values), name="plan_settlement_is_known"),
            models.CheckConstraint(
                condition=~Q(currency=TOKENS) | Q(settles=Settles.WALLET), name="tokens_are_paid_by_wallet"
            ),
            models.CheckConstraint(
                condition=Q(starting_credit=0) | (Q(starting_credit__gt=0) & ~Q(settles=Settles.INVOICE)),
                name="starting_credit_is_of_a_plan_with_a_wallet",
            ),
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
        models.CharField(max_length=40),
        help_text="Resources and declared meters that are charged; others are waived: 'not charged by this plan'.",
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

    An empty selector matches everything. Where several prices match, one with hours wins, then the one with most
    selectors, then the one that stands first.
    """

    version = models.ForeignKey(PlanVersion, on_delete=models.PROTECT, related_name="prices")
    meter = models.CharField(max_length=40)
    resource = models.CharField(
        max_length=40, help_text="What the meter counts; a declared meter is a resource of its own."
    )
    unit = models.CharField(max_length=40, blank=True, help_text="Of a declared meter, as that has it.")
    title = models.CharField(max_length=60, blank=True, help_text="Of a declared meter, as that has it.")
    unit_code = models.CharField(max_length=3, blank=True, help_text="Of a declared meter, as that has it.")
    position = models.PositiveIntegerField(default=0)
    clusters = _any("Cluster names")
    queues = _any("Slurm partitions or queues")
    qoses = _any("QOS names")
    priority_classes = _any("Priority classes")
    gpu_models = _any("GPU models")
    mig_profiles = _any("MIG profiles")
    states = _any("Job states")
    uses = _any("Of GPUs: busy, idle or unknown seconds, as telemetry tells them")
    dimensions = _any("Of a declared meter: dimensions with their values, model=large")
    hours = models.JSONField(
        default=dict,
        blank=True,
        help_text="The windows of the week in which it holds, as `billing.rules.hours` writes them; none: always.",
    )
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="For this tenant alone; it wins over every price for all.",
    )
    specificity = models.PositiveSmallIntegerField(
        default=0,
        help_text="How many selectors are not empty; ten more with hours, a hundred more for one tenant alone.",
    )
    selector = models.TextField(
        blank=True, help_text="The selectors in canonical form; `line_descriptions` has them in words."
    )
    model = models.CharField(
        max_length=10,
        choices=[(scale.value, scale.value.replace("_", " ")) for scale in Scale],
        default=Scale.PER_UNIT.value,
        help_text="How the price depends on the quantity.",
    )
    scale = models.JSONField(
        default=dict,
        blank=True,
        help_text="Tiers or package, as `billing.rules.tiers` writes them; none per unit.",
    )
    unit_price = models.DecimalField(
        max_digits=24,
        decimal_places=12,
        help_text="Per unit of the meter; of a model with a scale the first unit's, by which use is valued until "
        "its period is totalled.",
    )
    allowance = models.ForeignKey(
        "billing.Allowance",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="prices",
        help_text="Of the same version: its units cost nothing.",
    )
    valid_from = models.DateField()
    valid_until = models.DateField(null=True, blank=True)
    corrected_through = models.BigIntegerField(
        default=0, editable=False, help_text="`number` of its newest correction; 0: none."
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(unit_price__gte=0), name="price_is_not_negative"),
            models.CheckConstraint(
                condition=(
                    Q(resource__in=Resource.values) & ~Q(meter=F("resource")) & Q(unit="", dimensions=[])
                )
                | (Q(meter=F("resource")) & ~Q(unit="") & ~Q(title="") & ~Q(unit_code="")),
                name="price_is_of_a_resource_or_a_declared_meter",
            ),
            models.CheckConstraint(
                condition=Q(model="per_unit", scale={})
                | (Q(model__in=["graduated", "volume", "package"]) & ~Q(scale={})),
                name="price_has_the_scale_of_its_model",
            ),
            models.CheckConstraint(
                condition=Q(uses=[]) | Q(resource=Resource.GPU, uses__contained_by=list(USES)),
                name="price_by_use_is_of_gpu_seconds",
            ),
            models.CheckConstraint(
                condition=Q(hours={}) | Q(hours__has_keys=["windows", "zone"]),
                name="price_hours_have_windows_and_a_clock",
            ),
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


def priced_meter(price: Price) -> AnyMeter:
    """The meter that the price is of."""
    return meter_of(price.meter, unit=price.unit, label=price.title)


def model_of(price: Price) -> PriceModel:
    """The rule by which the price turns a quantity into money."""
    return of_terms({"model": price.model, **price.scale}) if price.scale else PerUnit(price.unit_price)


def take_model(price: Price, model: PriceModel) -> None:
    """Have the price be of that model; it is not saved."""
    terms = as_terms(model)
    price.model = terms.pop("model")
    price.scale = {} if isinstance(model, PerUnit) else terms
    price.unit_price = (
        model.unit_price
        if isinstance(model, PerUnit)
        else Decimal(rounded_text(first_price(model), MAX_PRICE_DECIMALS))
    )
