"""Price models that look at how much was used: graduated, volume and package prices.

Each sees the total of a price in a service period, over all projects of the tenant. A tier stores one
bound, `up_to`, inclusive; the next begins just above it, and the last has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

from billing.rules.errors import RuleError
from billing.rules.meters import SECONDS_PER_HOUR, PerUnit, PriceModel
from billing.rules.money import Money, decimal_of
from portal.excerpt import quoted

LARGEST_QUANTITY = 10**12
QUANTITY_DECIMALS = 6


class Scale(StrEnum):
    """How a price depends on the quantity."""

    PER_UNIT = "per_unit"
    GRADUATED = "graduated"
    VOLUME = "volume"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class Tier:
    """Up to and with `up_to` units (hours of the resource), or without an end, a unit costs `unit_price`.

    ValueError for a price that `PerUnit` refuses and a bound that is not above zero.
    """

    up_to: Decimal | None
    unit_price: Decimal

    def __post_init__(self) -> None:
        PerUnit(self.unit_price)
        if self.up_to is not None:
            _check_quantity(self.up_to, "tier")

    @property
    def end(self) -> Fraction | None:
        """Its bound in resource-seconds."""
        return None if self.up_to is None else Fraction(self.up_to) * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Graduated:
    """Each unit costs what the tier that it lies in says: the first at the first price, and so on.

    More use never costs less. ValueError unless the bounds rise and only the last tier has none.
    """

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        _rising(self.tiers)

    @property
    def unit_price(self) -> None:
        """No one price tells it."""

    def amount(self, resource_seconds: Fraction, currency: str) -> Money:
        """What that quantity costs, exact: the sum over the tiers that it fills."""
        sum_, start = Money.zero(currency), Fraction(0)
        for tier in self.tiers:
            within = resource_seconds if tier.end is None else min(resource_seconds, tier.end)
            if within <= start:
                break
            sum_ += PerUnit(tier.unit_price).amount(within - start, currency)
            start = within
        return sum_


@dataclass(frozen=True, slots=True)
class Volume:
    """All units cost what the tier says in which their total lies.

    Where a tier is cheaper than the one before it, using a little more costs less: `cliffs` tells
    where. ValueError unless the bounds rise and only the last tier has none.
    """

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        _rising(self.tiers)

    @property
    def unit_price(self) -> None:
        """No one price tells it."""

    def amount(self, resource_seconds: Fraction, currency: str) -> Money:
        """What that quantity costs, exact."""
        return PerUnit(self.tier(resource_seconds).unit_price).amount(resource_seconds, currency)

    def tier(self, resource_seconds: Fraction) -> Tier:
        """The one that the total lies in."""
        return next(tier for tier in self.tiers if tier.end is None or resource_seconds <= tier.end)

    def cliffs(self, currency: str) -> list[tuple[Decimal, Money, Money]]:
        """Each bound above which all use costs less, with what it costs at the bound and just above it."""
        falls = []
        for tier, following in pairwise(self.tiers):
            if tier.end is not None and tier.up_to is not None and following.unit_price < tier.unit_price:
                at, above = (
                    PerUnit(neighbor.unit_price).amount(tier.end, currency) for neighbor in (tier, following)
                )
                falls.append((tier.up_to, at, above))
        return falls


@dataclass(frozen=True, slots=True)
class Package:
    """Units are sold by `size` at `price`; one that is begun is paid in full. No use, no package.

    More use never costs less. ValueError for a size that is not above zero and for a price as `PerUnit`.
    """

    size: Decimal  # hours of the resource
    price: Decimal  # of a package

    def __post_init__(self) -> None:
        PerUnit(self.price)
        _check_quantity(self.size, "package")

    @property
    def unit_price(self) -> None:
        """No one price tells it."""

    def packages(self, resource_seconds: Fraction) -> int:
        """How many the quantity takes."""
        return ceil(resource_seconds / (Fraction(self.size) * SECONDS_PER_HOUR))

    def amount(self, resource_seconds: Fraction, currency: str) -> Money:
        """What that quantity costs, exact."""
        return Money(Fraction(self.price) * self.packages(resource_seconds), currency)


def as_terms(model: PriceModel) -> dict[str, Any]:
    """The model as JSON, with exact decimals as text; `of_terms` reads it."""
    if isinstance(model, PerUnit):
        return {"model": Scale.PER_UNIT.value, "unit_price": _plain(model.unit_price)}
    if isinstance(model, Package):
        return {"model": Scale.PACKAGE.value, "size": _plain(model.size), "price": _plain(model.price)}
    if isinstance(model, (Graduated, Volume)):
        scale = Scale.GRADUATED if isinstance(model, Graduated) else Scale.VOLUME
        tiers = [
            {
                "up_to": None if tier.up_to is None else _plain(tier.up_to),
                "unit_price": _plain(tier.unit_price),
            }
            for tier in model.tiers
        ]
        return {"model": scale.value, "tiers": tiers}
    raise TypeError(f"{type(model).__name__} is no price model that can be written down.")


def of_terms(terms: Mapping[str, Any]) -> PriceModel:
    """The model that `as_terms` wrote. ValueError with a sentence for people where it says none."""
    try:
        scale = Scale(terms["model"])
        if scale is Scale.PER_UNIT:
            return PerUnit(_decimal(terms["unit_price"]))
        if scale is Scale.PACKAGE:
            return Package(_decimal(terms["size"]), _decimal(terms["price"]))
        bounds = [(tier.get("up_to"), tier["unit_price"]) for tier in terms["tiers"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise RuleError("price-terms", terms=terms) from error
    tiers = tuple(
        Tier(None if up_to is None else _decimal(up_to), _decimal(unit_price)) for up_to, unit_price in bounds
    )
    return Graduated(tiers) if scale is Scale.GRADUATED else Volume(tiers)


def first_price(model: PriceModel) -> Fraction:
    """The price of the first unit by itself: what use is valued at before its period is totalled."""
    if isinstance(model, Package):
        return Fraction(model.price) / Fraction(model.size)
    if isinstance(model, (Graduated, Volume)):
        return Fraction(model.tiers[0].unit_price)
    return Fraction(model.unit_price or 0)


def _rising(tiers: Sequence[Tier]) -> None:
    if not tiers or tiers[-1].up_to is not None:
        raise RuleError("tiers-end")
    bounds = [tier.up_to for tier in tiers[:-1]]
    if None in bounds:
        raise RuleError("tiers-open")
    for lower, upper in pairwise(bounds):
        if lower is not None and upper is not None and lower >= upper:
            raise RuleError("tiers-rise", upper=upper, lower=lower)


def _check_quantity(quantity: Decimal, what: str) -> None:
    if not isinstance(quantity, Decimal):
        raise TypeError(f"A quantity is a Decimal, not {type(quantity).__name__}.")
    if not quantity.is_finite() or not 0 < quantity <= LARGEST_QUANTITY:
        raise RuleError(f"{what}-quantity-size", most=LARGEST_QUANTITY, quantity=quantity)
    if (Fraction(quantity) * 10**QUANTITY_DECIMALS).denominator != 1:
        raise RuleError(f"{what}-quantity-decimals", most=QUANTITY_DECIMALS, quantity=quantity)


def _decimal(text: Any) -> Decimal:
    if not isinstance(text, str):
        raise RuleError("number-inexact", text=quoted(text))
    try:
        return decimal_of(text)
    except ValueError:
        raise RuleError("number-unreadable", text=quoted(text)) from None


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
