"""Plans and their prices: the only way in which terms come about and change; `subscriptions` puts tenants on them.

What usage was rated by never changes: a price in use can only be ended, or corrected in what it comes to, a version in
use only be followed by another. None of these functions rates anything; the caller rates what it touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from billing.catalog import meters
from billing.catalog.messages import SENTENCES
from billing.catalog.price_corrections import keep_amount
from billing.models import (
    Allowance,
    Commitment,
    Discount,
    Fee,
    InvoiceLine,
    LineKind,
    PeriodTotal,
    Plan,
    PlanVersion,
    Price,
    Resource,
    Settles,
)
from billing.models.plans import OF_SUMS, RATED_BY, SELECTORS, USES, model_of, take_model
from billing.rules import hours as clock
from billing.rules.errors import RuleError
from billing.rules.hours import Hours
from billing.rules.meters import Meter, PerUnit, PriceModel, is_built_in
from billing.rules.money import TOKENS, is_currency
from billing.rules.tiers import as_terms
from clusters.connectors.base import UNKNOWN_OUTCOME
from clusters.models import DeclaredMeter
from portal.core.tenants.models import Tenant
from portal.errors import CodedError
from portal.excerpt import quoted

OF_ONE_TENANT = 100
WITH_HOURS = 10  # more than there are selectors
LARGEST_PRICE = Decimal(10) ** 12


class PlanError(CodedError):
    """Terms cannot be so; the message says why and what to do instead."""

    sentences = SENTENCES


@transaction.atomic
def set_plan(*, name: str, currency: str, settles: Settles | None = None) -> Plan:
    """The plan of that name, made if there is none. Its currency, and what pays, change only before it is used.

    Without `settles` what pays stays; of a new plan it is the invoice. Raises PlanError for what is no currency, for
    tokens that a wallet does not pay, and for a change once the plan was billed by; one takes a starting credit away.
    """
    if settles is None:
        existing = Plan.objects.filter(name=name).values_list("settles", flat=True).first()
        settles = Settles(existing or Settles.INVOICE)
    if currency == TOKENS and settles is not Settles.WALLET:
        raise PlanError("tokens-settled-by-invoice", tokens=TOKENS, settles=Settles.WALLET.value)
    if not is_currency(currency) and currency != TOKENS:
        raise PlanError("currency-of-plan-unknown", currency=quoted(currency), tokens=TOKENS)
    defaults = {"currency": currency, "settles": settles}
    plan, new = Plan.objects.select_for_update().get_or_create(name=name, defaults=defaults)
    if new or (plan.currency, plan.settles) == (currency, settles):
        return plan
    used = next((version for version in plan.versions.all() if billed(version)), None)
    if used is not None:
        other = currency if plan.currency != currency else f"what is paid by {settles.value}"
        raise PlanError(f"plan-currency-{_use(used)}", plan=name, currency=plan.currency, other=other)
    plan.currency, plan.settles, plan.starting_credit = currency, settles, 0
    plan.save(update_fields=["currency", "settles", "starting_credit"])
    return plan


@transaction.atomic
def new_version(*, plan: Plan, effective_from: date, charges: Sequence[str]) -> PlanVersion:
    """The plan's terms from that day until its next version begins; it starts without prices.

    Asked again, the same version. Another set of `charges` for a day that has one replaces it while
    no usage was rated, and no line billed, by it, and raises PlanError afterwards.
    """
    resources = _resources(charges)
    version, new = PlanVersion.objects.select_for_update().get_or_create(
        plan=plan, effective_from=effective_from, defaults={"charges": resources}
    )
    if new or version.charges == resources:
        return version
    if billed(version):
        charged = ", ".join(version.charges) or "nothing"
        raise PlanError(f"plan-charges-{_use(version)}", plan=plan, since=effective_from, charges=charged)
    version.charges = resources
    version.save(update_fields=["charges"])
    return version


@transaction.atomic
def set_price(
    *,
    version: PlanVersion,
    meter: str,
    where: Mapping[str, Sequence[str]],
    model: PriceModel,
    valid_from: date,
    valid_until: date | None = None,
    allowance: Allowance | None = None,
    tenant: Tenant | None = None,
    hours: Hours | None = None,
    correction: str = "",
) -> Price:
    """The meter's usage that is selected costs that during [valid_from, valid_until), in these hours of the week.

    What a price selects, counts and begins with is what it is: asked again, the same price, with another amount only
    while no usage was rated by it, or with the reason of a `correction`, as `save_price` says. Without `valid_until` a
    standing price keeps its end. Raises PlanError where two would hold at once.
    """
    version = PlanVersion.objects.select_for_update().select_related("plan").get(pk=version.pk)
    price = Price(
        version=version, meter=meter, valid_from=valid_from, tenant=tenant, hours=clock.as_terms(hours)
    )
    for name, values in where.items():
        if name not in SELECTORS:
            raise PlanError("selector-unknown", name=quoted(name), allowed=", ".join(SELECTORS))
        setattr(price, SELECTORS[name], sorted(set(values)))
    existing = version.prices.filter(
        meter=meter, selector=complete(price).selector, valid_from=valid_from
    ).first()
    if existing is not None:
        price = existing
    take_model(price, model)
    price.allowance = allowance
    price.valid_until = valid_until or price.valid_until
    return save_price(price, correction=correction)


@transaction.atomic
def save_price(price: Price, *, correction: str = "") -> Price:
    """Write a price that is complete but for its place and what follows from its meter and selectors.

    A new one stands behind the others of its version. With a reason in `correction` a price in use may come to another
    amount, on all of its days: the next close bills or credits the difference, and no usage is rated again. Raises
    PlanError for any other change of a price in use but of its end, an end that is no later than its beginning, or a
    second price for the same usage at the same time.
    """
    complete(price)
    _refuse_unaffordable(price)
    before = Price.objects.select_for_update().filter(pk=price.pk).first()
    if before is None:
        last = price.version.prices.order_by("-position").values_list("position", flat=True).first()
        price.position = 0 if last is None else last + 1
    elif price_terms(before) == price_terms(price):
        if before.valid_until == price.valid_until and before.position == price.position:
            return before
    elif in_use(before):
        if not correction.strip() or price.allowance_id != before.allowance_id or not _is_same(before, price):
            raise PlanError("price-rated", price=before, valid_from=before.valid_from)
        price.corrected_through = keep_amount(before, reason=correction.strip())
    if price.valid_until is not None and price.valid_until <= price.valid_from:
        raise PlanError("price-ends-before-it-begins", price=price, valid_until=price.valid_until)
    _refuse_second(price)
    price.save()
    return price


@transaction.atomic
def correct_price(*, price: Price, model: PriceModel, reason: str) -> Price:
    """Have the price come to that on all of its days, past ones too; asked again, nothing changes.

    Raises PlanError without a reason, and as `save_price`.
    """
    price = (
        Price.objects.select_for_update(of=("self",))
        .select_related("version__plan", "tenant", "allowance")
        .get(pk=price.pk)
    )
    if not reason.strip():
        raise PlanError("correction-without-reason", price=price)
    take_model(price, model)
    return save_price(price, correction=reason)


@transaction.atomic
def arrange(prices: Sequence[Price]) -> None:
    """Have these prices of one version stand in this order; it decides between equally specific ones."""
    places = sorted(price.position for price in prices)
    for price, place in zip(prices, places, strict=True):
        if price.position != place:
            price.position = place
            price.save(update_fields=["position"])


@transaction.atomic
def end_price(*, price: Price, on: date) -> Price:
    """Have the price hold up to that day, exclusive; asked again, nothing changes. Raises PlanError as `save_price`."""
    price = (
        Price.objects.select_for_update(of=("self",))
        .select_related("version__plan", "tenant")
        .get(pk=price.pk)
    )
    price.valid_until = on
    return save_price(price)


@transaction.atomic
def delete_plan(*, plan: Plan) -> None:
    """Delete a plan that nobody was ever on. Raises PlanError for any other: what was billed by it refers to it."""
    plan = Plan.objects.select_for_update().get(pk=plan.pk)
    tenants = subscribers(plan).count()
    if tenants:
        code = "plan-with-tenant" if tenants == 1 else "plan-with-tenants"
        raise PlanError(code, count=tenants, plan=plan)
    for version in plan.versions.all():
        delete_version(version=version)
    plan.delete()


@transaction.atomic
def delete_version(*, version: PlanVersion) -> None:
    """Delete a version with all that it says. Raises PlanError where usage was rated, or a line billed, by it."""
    version = PlanVersion.objects.select_for_update().select_related("plan").get(pk=version.pk)
    if billed(version):
        raise PlanError(f"plan-version-{_use(version)}", version=version)
    version.prices.all().delete()
    for rows in (version.allowances, version.fees, version.commitments, version.discounts, version.quotas):
        rows.all().delete()
    version.delete()


def subscribers(plan: Plan) -> QuerySet[Tenant]:
    """Whoever was ever on the plan: their usage is to be rated again when it changes."""
    return Tenant.objects.filter(subscriptions__plan=plan).order_by("pk").distinct()


def by_use() -> bool:
    """Whether any price depends on how busy devices were: what is told of that is rated then. One query."""
    return Price.objects.exclude(uses=[]).exists()


def in_use(terms: Price | PlanVersion) -> bool:
    """Whether rated usage refers to it, taken back since or not; a version by which use is free is in use, too."""
    if isinstance(terms, Price):
        return PeriodTotal.objects.filter(price_id=terms.pk).exists()
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {RATED_BY.format(version='%(version)s')}", {"version": terms.pk})
        return bool(cursor.fetchone()[0])


def billed(version: PlanVersion) -> bool:
    """Whether usage was rated by the version, or a line states a term of it."""
    if in_use(version):
        return True
    kinds = {LineKind.FEE: Fee, LineKind.COMMITMENT: Commitment, LineKind.DISCOUNT: Discount}
    return any(
        InvoiceLine.objects.filter(
            kind=kind,
            term_id__in=model._default_manager.filter(version=version).values("pk"),
        ).exists()
        for kind, model in kinds.items()
    )


def complete(price: Price) -> Price:
    """Fill what follows from the meter, the selectors and the hours: resource, canonical text, specificity."""
    declared = _take_meter(price)
    chosen = {name: values for name in sorted(SELECTORS) if (values := getattr(price, SELECTORS[name]))}
    for name, values in chosen.items():
        if any(not value.strip() or set(value) & set(",;") for value in values):
            raise PlanError("selector-text", name=name)
    _refuse_selectors(price, chosen, declared)
    if price.uses and (set(price.uses) - set(USES) or price.resource != Resource.GPU):
        raise PlanError("price-selectors", meter=Meter.GPU_HOUR, allowed=", ".join(USES))
    if any(state.startswith(UNKNOWN_OUTCOME) for state in price.states):
        raise PlanError("price-of-unknown-state", state=UNKNOWN_OUTCOME)
    parts = [f"{name}={','.join(sorted(values))}" for name, values in chosen.items()]
    try:
        hours = clock.of_terms(price.hours)
    except ValueError as error:
        raise PlanError("price-hours", cause=error) from error
    price.hours = clock.as_terms(hours)
    if hours is not None:
        parts.append(f"hours={hours}")
    if price.tenant is not None:
        parts.append(f"tenant={price.tenant.slug}")
    price.selector = "; ".join(parts)
    price.specificity = (
        len(chosen)
        + max(len({pair.partition("=")[0] for pair in price.dimensions}) - 1, 0)
        + (WITH_HOURS if hours is not None else 0)
        + (OF_ONE_TENANT if price.tenant is not None else 0)
    )
    return price


def price_terms(price: Price) -> tuple[object, ...]:
    """What a price is, but for its end and its place."""
    return (
        price.version_id,
        price.meter,
        price.selector,
        price.unit_price,
        price.model,
        price.scale,
        price.allowance_id,
        price.valid_from,
    )


def _is_same(before: Price, price: Price) -> bool:
    """Whether it is the price of the same usage on the same days, whatever it comes to."""
    return (before.version_id, before.meter, before.selector, before.valid_from) == (
        price.version_id,
        price.meter,
        price.selector,
        price.valid_from,
    )


def _take_meter(price: Price) -> DeclaredMeter | None:
    """Fill what follows from the meter: of a declared one, which is returned, its unit and its name."""
    declared = None if is_built_in(price.meter) else meters.find(price.meter)
    if declared is None and not is_built_in(price.meter):
        raise PlanError(
            "meter-unknown", meter=quoted(price.meter), allowed=", ".join([*Meter, *meters.names()])
        )
    meters.fill(price, declared)
    return declared


def _refuse_selectors(price: Price, chosen: Collection[str], declared: DeclaredMeter | None) -> None:
    """Runs have no dimensions, and sums hardly anything else."""
    if declared is None:
        if price.dimensions:
            raise PlanError("dimension-of-run", meter=price.meter)
        return
    for name in sorted(set(chosen) - set(OF_SUMS)):
        raise PlanError("selector-of-sum", meter=declared.name, name=name, allowed=", ".join(OF_SUMS))
    if unknown := meters.unknown_dimension(price.dimensions, declared):
        allowed = ", ".join(f"{name}=…" for name in declared.dimensions) or "none"
        raise PlanError("dimension-unknown", pair=quoted(unknown), meter=declared.name, allowed=allowed)


def _resources(charges: Sequence[str]) -> list[str]:
    """In one order, whatever the order in which they are named."""
    others = sorted(set(charges) - set(Resource.values))
    if others and (unknown := [name for name in others if name not in meters.names()]):
        allowed = ", ".join([*Resource.values, *meters.names()])
        raise PlanError("charge-unknown", name=quoted(unknown[0]), allowed=allowed)
    return [name for name in (*Resource.values, *others) if name in charges]


def _use(version: PlanVersion) -> str:
    return "rated" if in_use(version) else "billed"


def _refuse_unaffordable(price: Price) -> None:
    try:
        PerUnit(price.unit_price)
        stated = as_terms(model_of(price))
    except RuleError as error:
        raise PlanError(error.code, **error.values) from error
    if price.allowance is not None and price.allowance.version_id != price.version_id:
        raise PlanError("allowance-of-another-version", allowance=price.allowance)
    if price.scale and price.version.plan.settles == Settles.WALLET:
        raise PlanError("wallet-plan-prices", plan=price.version.plan)
    amounts = [Decimal(tier["unit_price"]) for tier in stated.get("tiers", ())]
    for amount in (price.unit_price, Decimal(stated.get("price", 0)), *amounts):
        if amount >= LARGEST_PRICE:
            raise PlanError("price-too-large", most=LARGEST_PRICE, amount=amount)


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
            "prices-overlap",
            price=price,
            valid_from=price.valid_from,
            other=other,
            since=other.valid_from,
            until=until,
        )
