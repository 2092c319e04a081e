"""A tenant's plan as it pays it: what holds for it on a day, and what it has used of tiers and included units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction

from django.db.models import Q, QuerySet

from billing.catalog import terms
from billing.catalog.terms import Terms
from billing.catalog.version_terms import Term
from billing.invoicing.charges import read_allowances
from billing.models import Allowance, Commitment, Plan, PlanVersion, Price, Subscription
from billing.models.plans import SELECTORS
from billing.queries.accrued_charges import accrued
from billing.queries.overview import Around
from billing.rules.fees import Included
from portal.core.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class PlanUse:
    """What the running period has used of the plan. Quantities are resource-seconds: 3,600 of them are a unit."""

    used: Mapping[int, Fraction] = field(default_factory=dict)  # by price, without what is included
    included: Sequence[tuple[Allowance, Included]] = ()
    is_shared: bool = False  # another tenant pays for a part, and counts tiers of its own


@dataclass(frozen=True, slots=True)
class OwnPlan:
    """What holds for one tenant: none of what was agreed with another, and nothing that begins later."""

    version: PlanVersion
    since: datetime  # on the plan
    prices: Sequence[Price]
    terms: Sequence[Term]
    use: PlanUse


@dataclass(frozen=True, slots=True)
class PlannedPlan:
    """The plan that follows, with what it costs the tenant on its first day."""

    plan: Plan
    since: datetime
    prices: Sequence[Price]


def load_own_plan(tenant: Tenant, *, around: Around | None, moment: datetime, day: date) -> OwnPlan | None:
    """The plan on this day of the tenant's zone; None where it is on none. Reads by plans: in an `acting_scope`.

    `around` is the billing period that runs at the moment; None where nothing was used yet. Three queries, and those of
    its charges.
    """
    now = Q(until=None) | Q(until__gt=moment)
    subscription = Subscription.objects.filter(now, tenant=tenant, since__lte=moment).first()
    version = _version(subscription, day)
    if subscription is None or version is None:
        return None
    charges = accrued(tenant=tenant, period=around.period, inputs=around.inputs) if around else None
    inputs = charges.books[0] if charges else None
    own = inputs.terms if inputs else terms.of_tenants([tenant.pk]).get(tenant.pk)
    use = PlanUse()
    if charges is not None and inputs is not None:
        free, stands = read_allowances(inputs)
        sums: dict[int, Fraction] = defaultdict(Fraction)
        for key, seconds in inputs.used.items():
            if key.service == inputs.period:
                sums[key.price_id] += seconds
        used = {price: seconds - free.get(price, Fraction(0)) for price, seconds in sums.items()}
        ours = [(row, stand) for row, stand in stands if row.version_id == version.pk]
        use = PlanUse(used, ours, len(charges.books) > 1)
    return OwnPlan(
        version,
        subscription.since,
        _prices(tenant, Price.objects.filter(version=version), day),
        _terms(own, version, day) if own else [],
        use,
    )


def load_planned_plan(tenant: Tenant, *, moment: datetime) -> PlannedPlan | None:
    """None where no change is planned: one query, else three. Reads by plans: in an `acting_scope`."""
    coming = Subscription.objects.filter(tenant=tenant, since__gt=moment).select_related("plan")
    subscription = coming.order_by("since").first()
    if subscription is None:
        return None
    day = subscription.since.astimezone(tenant.zone).date()
    listed = Price.objects.filter(version=_version(subscription, day))
    return PlannedPlan(subscription.plan, subscription.since, _prices(tenant, listed, day))


def load_own_prices(tenant: Tenant, *, moment: datetime, day: date) -> list[Price]:
    """The prices of the plan on this day; none where it is on none. One query, in an `acting_scope`."""
    now = Q(until=None) | Q(until__gt=moment)
    plans = Subscription.objects.filter(now, tenant=tenant, since__lte=moment).order_by("pk").values("plan")
    versions = PlanVersion.objects.filter(plan=plans[:1], effective_from__lte=day)
    newest = versions.order_by("-effective_from").values("pk")[:1]
    return _prices(tenant, Price.objects.filter(version__in=newest), day)


def _version(subscription: Subscription | None, day: date) -> PlanVersion | None:
    if subscription is None:
        return None
    versions = PlanVersion.objects.filter(plan=subscription.plan_id, effective_from__lte=day)
    return versions.select_related("plan").order_by("-effective_from").first()


def _prices(tenant: Tenant, listed: QuerySet[Price], day: date) -> list[Price]:
    """In the order of the plan, what is the tenant's own first; without what its own prices stand in the place of."""
    rows = listed.filter(
        Q(tenant=None) | Q(tenant=tenant), Q(valid_until=None) | Q(valid_until__gt=day), valid_from__lte=day
    )
    prices = list(rows.select_related("version__plan", "allowance").order_by("position", "pk"))
    own = [price for price in prices if price.tenant_id is not None]
    others = [price for price in prices if price.tenant_id is None]
    return [*own, *(price for price in others if not any(_stands_for(one, price) for one in own))]


def _stands_for(own: Price, price: Price) -> bool:
    """Whether the tenant's own price matches all that the other one does: it wins over every price for all."""
    if own.meter != price.meter or own.hours not in ({}, price.hours):
        return False
    columns = [(getattr(own, column), getattr(price, column)) for column in SELECTORS.values()]
    return all(not chosen or (selected and set(selected) <= set(chosen)) for chosen, selected in columns)


def _terms(listed: Terms, version: PlanVersion, day: date) -> list[Term]:
    """Of each kind those that hold on the day: a tenant's own stand in the place of the plan's of their name."""
    kinds: list[Mapping[int, Sequence[Term]]] = [
        listed.commitments,
        listed.fees,
        listed.discounts,
        listed.allowances,
    ]
    held: list[Term] = []
    for by_version in kinds:
        rows = [row for row in by_version.get(version.pk, ()) if _holds(row, day)]
        own = {_place(row) for row in rows if row.tenant_id is not None}
        held += [row for row in rows if row.tenant_id is not None or _place(row) not in own]
    return held


def _holds(row: Term, day: date) -> bool:
    begun = row.valid_from is None or row.valid_from <= day
    return begun and (row.valid_until is None or row.valid_until > day)


def _place(row: Term) -> str:
    """By what one is another's: of a commitment there is one at a time, whatever it is called."""
    return "" if isinstance(row, Commitment) else row.name
