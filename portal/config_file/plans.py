"""Writing a version of a plan as a file has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import date

from billing.catalog import plans, version_terms
from billing.catalog.public_plans import set_offer
from billing.catalog.version_terms import SETTERS
from billing.models import Plan, PlanVersion, Price, Settles
from billing.rules.money import Money
from billing.rules.tiers import of_terms
from clusters.models import Cluster
from portal.config_file.plan_entries import PlanEntry, PriceEntry, TermEntry
from portal.config_file.toml_table import ConfigError
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.sentences import sentence

Refusals = Callable[[str], AbstractContextManager[None]]
"""What undoes and reports the refusal of one part, by its label, so that the next one is tried."""


def write(entry: PlanEntry, refusals: Refusals) -> None:
    """Have the version be as the entry says. Raises PlanError, QuotaError, RuleError and ConfigError."""
    plan = plans.set_plan(name=entry.name, currency=entry.currency, settles=entry.settles)
    plan = set_offer(plan=plan, public=entry.public, starting_credit=entry.starting_credit)
    version = plans.new_version(plan=plan, effective_from=_first_day(plan, entry), charges=entry.charges)
    for term in sorted(entry.terms, key=_order):
        SETTERS[term.model](version=version, **term.columns("tenant"), tenant=_tenant(term.tenant))
    for quota in entry.quotas:
        with refusals(quota.label):
            quota.write(version)
    rows: dict[int, Price] = {}
    for place, price in sorted(enumerate(entry.prices), key=lambda pair: pair[1].since):
        with refusals(price.label):
            rows[place] = write_price(version, price)
    in_order = [rows[place] for place in sorted(rows)]
    if len({price.pk for price in in_order}) < len(in_order):
        raise ConfigError(
            "two of its prices have the same meter, `where`, `hours` and `from`; leave one out."
        )
    plans.arrange(in_order)


def _order(term: TermEntry) -> tuple[int, bool, date]:
    """The plan's own before what stands in its place for one tenant, which ends before what follows it."""
    own = term.tenant is not None
    return list(SETTERS).index(term.model), own, (term.valid_from or date.min) if own else date.min


def write_price(version: PlanVersion, entry: PriceEntry) -> Price:
    """Have the version say the price. Raises PlanError and ConfigError."""
    unknown = set(entry.where.get("cluster", ())) - set(Cluster.objects.values_list("name", flat=True))
    if unknown:
        raise ConfigError(f"where.cluster names {quoted(min(unknown))}, {missing(Cluster)}.")
    tenant = _tenant(entry.tenant)
    try:
        model = of_terms(entry.terms)
    except ValueError as error:
        raise ConfigError(sentence(error)) from error
    return plans.set_price(
        version=version,
        meter=entry.meter,
        where=entry.where,
        hours=entry.hours,
        model=model,
        allowance=version_terms.allowance_of(version, entry.allowance) if entry.allowance else None,
        tenant=tenant,
        valid_from=entry.since,
        valid_until=entry.until,
        correction=entry.correction or "",
    )


def _tenant(slug: str | None) -> Tenant | None:
    tenant = Tenant.objects.filter(slug=slug).first() if slug else None
    if slug and tenant is None:
        raise ConfigError(f"tenant is {quoted(slug)}, which neither the file nor the database has.")
    return tenant


def described(plan: Plan) -> Mapping[str, str]:
    """What a list of changes says of a plan beside its versions."""
    credit = Money.from_minor(plan.starting_credit, plan.currency).text if plan.starting_credit else ""
    return {
        "currency": plan.currency,
        "paid by": "" if plan.settles == Settles.INVOICE else plan.settles,
        "public": "yes" if plan.public else "",
        "starting credit": credit,
    }


def missing(model: type[Cluster | Plan]) -> str:
    """How a sentence goes on about a name that no row of the model has."""
    names = ", ".join(model._default_manager.order_by("name").values_list("name", flat=True)) or "none yet"
    return f"which neither the file nor the database has; known: {names}"


def _first_day(plan: Plan, entry: PlanEntry) -> date:
    """Of the version that the entry means: the day in the file, or the only version there is."""
    days = sorted(plan.versions.values_list("effective_from", flat=True))
    if entry.since is not None or not days or entry.begins in days:
        return entry.begins
    if len(days) > 1:
        listed = ", ".join(map(str, days))
        raise ConfigError(
            f"it has several versions: say with `from` which one is meant ({listed}), or a new day."
        )
    if entry.begins < days[0]:
        raise ConfigError(
            f"a price begins on {entry.begins}, before the plan does on {days[0]}: say with `from` from when "
            f"this version of it applies."
        )
    return days[0]
