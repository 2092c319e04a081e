"""Plans with more than a price per unit, as stories of pricing begin with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal

from billing.catalog import plans, version_terms
from billing.models import Plan, PlanVersion
from billing.rules.meters import PerUnit, PriceModel
from billing.rules.tiers import Graduated, Package, Tier, Volume
from tests.builders import LONG_AGO

Where = Mapping[str, Sequence[str]]


def tiers(*steps: tuple[str | None, str]) -> tuple[Tier, ...]:
    """`tiers(("100", "3.00"), (None, "2.50"))`: up to 100 units at 3.00, above at 2.50."""
    return tuple(Tier(Decimal(up_to) if up_to else None, Decimal(price)) for up_to, price in steps)


STEPS = tiers(("100", "3.00"), ("500", "2.50"), (None, "2.00"))
GRADUATED, VOLUME = Graduated(STEPS), Volume(STEPS)
TENS = Package(size=Decimal(10), price=Decimal("25.00"))
TWO_DOLLARS = PerUnit(Decimal("2.00"))


def a_version(
    *prices: PriceModel | tuple[PriceModel, Where],
    name: str = "standard",
    currency: str = "USD",
    effective_from: date = LONG_AGO,
    allowance: str = "",
) -> PlanVersion:
    """A version of a plan that charges GPU-hours by these prices; so many hours are included in all of them."""
    plan = plans.set_plan(name=name, currency=currency)
    version = plans.new_version(plan=plan, effective_from=effective_from, charges=["gpu"])
    free = (
        version_terms.set_allowance(version=version, name="Included hours", hours=Decimal(allowance))
        if allowance
        else None
    )
    for price in prices:
        model, where = price if isinstance(price, tuple) else (price, {})
        plans.set_price(
            version=version,
            meter="gpu-hour",
            where=where,
            model=model,
            valid_from=effective_from,
            allowance=free,
        )
    return version


def a_plan_of(*prices: PriceModel | tuple[PriceModel, Where], name: str = "standard") -> Plan:
    """As `a_version`, the plan."""
    return a_version(*prices, name=name).plan
