"""Plans and who is on them: the only way in which terms come about and change.

What usage was rated by never changes: a price in use can only be ended, a version in use only be
followed by another. None of these functions rates anything; the caller rates what it touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

from django.db import transaction
from django.db.models import Q, QuerySet

from billing.models import PeriodTotal, Plan, PlanVersion, Price, RatedUsage, Resource, Subscription
from billing.models.plans import SELECTORS
from billing.rules.money import is_currency
from billing.rules.period import billing_period
from billing.rules.pricing import Meter, PerUnit
from portal.tenants.models import Tenant

LARGEST_PRICE = Decimal(10) ** 12


class PlanError(Exception):
    """Terms cannot be so; the message says why and what to do instead."""


@transaction.atomic
def set_plan(*, name: str, currency: str) -> Plan:
    """The plan of that name, made if there is none. Its currency changes only before anything is rated by it."""
    if not is_currency(currency):
        raise PlanError(f"{currency!r} is not a currency; write its code of ISO 4217, such as USD or EUR.")
    plan, new = Plan.objects.select_for_update().get_or_create(name=name, defaults={"currency": currency})
    if new or plan.currency == currency:
        return plan
    if any(in_use(version) for version in plan.versions.all()):
        raise PlanError(
            f"Usage has been rated by plan {name} in {plan.currency}: make another plan for {currency}."
        )
    plan.currency = currency
    plan.save(update_fields=["currency"])
    return plan


@transaction.atomic
def new_version(*, plan: Plan, effective_from: date, charges: Sequence[str]) -> PlanVersion:
    """The plan's terms from that day until its next version begins; it starts without prices.

    Asked again, the same version. Another set of `charges` for a day that has one replaces it while
    no usage was rated by it, and raises PlanError afterwards.
    """
    wanted = _resources(charges)
    version, new = PlanVersion.objects.select_for_update().get_or_create(
        plan=plan, effective_from=effective_from, defaults={"charges": wanted}
    )
    if new or version.charges == wanted:
        return version
    if in_use(version):
        raise PlanError(
            f"Usage has been rated by plan {plan} from {effective_from}, so what it charges stays "
            f"{_listed(version.charges)}: give the plan a new version with a later `from`."
        )
    version.charges = wanted
    version.save(update_fields=["charges"])
    return version


@transaction.atomic
def set_price(
    *,
    version: PlanVersion,
    meter: str,
    where: Mapping[str, Sequence[str]],
    unit_price: Decimal,
    valid_from: date,
    valid_until: date | None = None,
) -> Price:
    """One unit of the meter costs that, for the usage selected, during [valid_from, valid_until).

    What a price selects, counts and begins with is what it is: asked again, the same price, with
    another amount only while no usage was rated by it. Without `valid_until` a standing price keeps
    its end. Raises PlanError where two would hold at once.
    """
    version = PlanVersion.objects.select_for_update().select_related("plan").get(pk=version.pk)
    price = Price(version=version, meter=meter, valid_from=valid_from)
    for name, values in where.items():
        if name not in SELECTORS:
            raise PlanError(f"{name!r} is nothing to select by; that are {', '.join(SELECTORS)}.")
        setattr(price, SELECTORS[name], sorted(set(values)))
    standing = version.prices.filter(
        meter=meter, selector=complete(price).selector, valid_from=valid_from
    ).first()
    if standing is not None:
        price = standing
    price.unit_price = _affordable(unit_price)
    price.valid_until = valid_until or price.valid_until
    return save_price(price)


@transaction.atomic
def save_price(price: Price) -> Price:
    """Write a price that is complete but for its place and what follows from its meter and selectors.

    A new one stands behind the others of its version. Raises PlanError for a change of a price in use
    other than of its end, an end that is no later than its beginning, or a second price for the same
    usage at the same time.
    """
    complete(price)
    _affordable(price.unit_price)
    before = Price.objects.select_for_update().filter(pk=price.pk).first()
    if before is None:
        last = price.version.prices.order_by("-position").values_list("position", flat=True).first()
        price.position = 0 if last is None else last + 1
    elif price_terms(before) == price_terms(price):
        if before.valid_until == price.valid_until and before.position == price.position:
            return before
    elif in_use(before):
        raise PlanError(
            f"Usage has been rated by the price {before} from {before.valid_from}, so it can only be ended: "
            f"give it an `until` and add a new price from that day on."
        )
    if price.valid_until is not None and price.valid_until <= price.valid_from:
        raise PlanError(f"The price {price} would end on {price.valid_until}, before it begins.")
    _refuse_second(price)
    price.save()
    return price


@transaction.atomic
def arrange(prices: Sequence[Price]) -> None:
    """Have these prices of one version stand in this order; it decides between equally specific ones."""
    places = sorted(price.position for price in prices)
    for price, place in zip(prices, places, strict=True):
        if price.position != place:
            price.position = place
            price.save(update_fields=["position"])


@transaction.atomic
def subscribe(*, tenant: Tenant, plan: Plan, since: datetime) -> Subscription:
    """Put the tenant on the plan from that instant on; the plan it is on ends there.

    A tenant that is on the plan at that instant stays as it is; one that came to it later has come
    earlier now. Raises PlanError where it goes to another plan after `since`, and for a change of
    currency inside a billing period.
    """
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    standing = tenant.subscriptions.select_related("plan").order_by("since")
    following = standing.filter(since__gt=since).first()
    present = standing.filter(Q(until=None) | Q(until__gt=since), since__lte=since).first()
    if present is not None and present.plan == plan:
        return present
    if following is not None and (following.plan != plan or present is not None):
        raise PlanError(
            f"{tenant.slug} is on plan {following.plan} from {following.since:%Y-%m-%d %H:%M} UTC on; "
            f"say from when after that plan {plan} applies."
        )
    if present is not None:
        _refuse_mixed_currencies(tenant, present.plan, plan, since)
    if following is not None:
        following.since = since
        following.save(update_fields=["since"])
        return following
    if present is not None and present.since == since:
        present.plan = plan
        present.save(update_fields=["plan"])
        return present
    if present is not None:
        present.until = since
        present.save(update_fields=["until"])
    return Subscription.objects.create(tenant=tenant, plan=plan, since=since)


def subscribers(plan: Plan) -> QuerySet[Tenant]:
    """Whoever was ever on the plan: their usage is to be rated again when it changes."""
    return Tenant.objects.filter(subscriptions__plan=plan).order_by("pk").distinct()


def in_use(terms: Price | PlanVersion) -> bool:
    """Whether rated usage refers to it, taken back since or not."""
    if isinstance(terms, Price):
        return PeriodTotal.objects.filter(price_id=terms.pk).exists()
    return RatedUsage.objects.filter(version_id=terms.pk).exists()


def complete(price: Price) -> Price:
    """Fill what follows from the meter and the selectors: resource, canonical text, specificity."""
    try:
        price.resource = Meter(price.meter).resource
    except ValueError:
        allowed = ", ".join(Meter)
        raise PlanError(f"{price.meter!r} is not a meter; those are {allowed}.") from None
    chosen = {name: values for name in sorted(SELECTORS) if (values := getattr(price, SELECTORS[name]))}
    for name, values in chosen.items():
        if any(not value.strip() or set(value) & set(",;") for value in values):
            raise PlanError(f"A {name} to select by is not empty and has neither comma nor semicolon.")
    price.selector = "; ".join(f"{name}={','.join(sorted(values))}" for name, values in chosen.items())
    price.specificity = len(chosen)
    return price


def price_terms(price: Price) -> tuple[object, ...]:
    """What a price is, but for its end and its place."""
    return price.version_id, price.meter, price.selector, price.unit_price, price.valid_from


def _resources(charges: Sequence[str]) -> list[str]:
    unknown = [name for name in charges if name not in Resource.values]
    if unknown:
        raise PlanError(f"{unknown[0]!r} is nothing to charge; that are {_listed(Resource.values)}.")
    return [name for name in Resource.values if name in charges]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _affordable(unit_price: Decimal) -> Decimal:
    try:
        PerUnit(unit_price)
    except ValueError as error:
        raise PlanError(str(error)) from error
    if unit_price >= LARGEST_PRICE:
        raise PlanError(f"A price is below {LARGEST_PRICE:,}, unlike {unit_price}.")
    return unit_price


def _refuse_second(price: Price) -> None:
    """Courtesy: the constraint `one_price_per_selection_at_a_time` is the law."""
    others = Price.objects.filter(
        Q(valid_until=None) | Q(valid_until__gt=price.valid_from),
        version=price.version,
        resource=price.resource,
        selector=price.selector,
    )
    if price.valid_until is not None:
        others = others.filter(valid_from__lt=price.valid_until)
    other = others.exclude(pk=price.pk).order_by("valid_from").first()
    if other is not None:
        until = f"until {other.valid_until}" if other.valid_until else "without an end"
        raise PlanError(
            f"The price {price} from {price.valid_from} overlaps the price {other} from {other.valid_from} "
            f"{until}: end the earlier one with `until` where the later one begins."
        )


def _refuse_mixed_currencies(tenant: Tenant, present: Plan, plan: Plan, since: datetime) -> None:
    if present.currency == plan.currency:
        return
    period = billing_period(since, zone=tenant.zone, anchor_day=tenant.anchor_day)
    if period.start != since:
        raise PlanError(
            f"{tenant.slug} would change from {present.currency} to {plan.currency} inside a billing period: "
            f"a currency changes where one begins, such as {period.start:%Y-%m-%d %H:%M} UTC."
        )
