"""What use costs: meters count it, price models turn the count into money.

A quantity is always in resource-seconds (GPU-seconds, core-seconds, GiB-seconds) as an exact
fraction, because a slice is 1/7 of a GPU and memory is recorded in MiB. Hours appear only where a
price meets a quantity and where people read one. A meter that the operator declared has its own unit in
the hour's place: one million tokens are 3,600 of what is called resource-seconds here, and so everything
that counts, prices and proves hours does the same with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Protocol, Self

from billing.rules.errors import RuleError
from billing.rules.money import Money


def _(text: str) -> str:
    """Marks a text for gettext, which translates it where it is shown."""
    return text


SECONDS_PER_HOUR = 3600
MAX_PRICE_DECIMALS = 12


class Meter(StrEnum):
    """What is counted."""

    GPU_HOUR = "gpu-hour"
    CPU_CORE_HOUR = "cpu-core-hour"
    MEMORY_GIB_HOUR = "memory-gib-hour"
    GPU_MEMORY_GIB_HOUR = "gpu-memory-gib-hour"
    BILLING_HOUR = "billing-hour"

    @property
    def resource(self) -> str:
        """The resource that a plan charges or waives: `gpu`, `cpu`, `memory`, `gpu-memory` or `billing`."""
        return _RESOURCES[self]

    @property
    def unit(self) -> str:
        """The unit of the quantity and of the price on an invoice."""
        return _UNITS[self]

    @property
    def label(self) -> str:
        """What an invoice calls it."""
        return _LABELS[self]


_RESOURCES = {
    Meter.GPU_HOUR: "gpu",
    Meter.CPU_CORE_HOUR: "cpu",
    Meter.MEMORY_GIB_HOUR: "memory",
    Meter.GPU_MEMORY_GIB_HOUR: "gpu-memory",
    Meter.BILLING_HOUR: "billing",
}
_UNITS = {
    Meter.GPU_HOUR: _("GPU-hour"),
    Meter.CPU_CORE_HOUR: _("core-hour"),
    Meter.MEMORY_GIB_HOUR: _("GiB-hour"),
    Meter.GPU_MEMORY_GIB_HOUR: _("GiB-hour"),
    Meter.BILLING_HOUR: _("billing-hour"),
}
_LABELS = {
    Meter.GPU_HOUR: _("GPU time"),
    Meter.CPU_CORE_HOUR: _("CPU time"),
    Meter.MEMORY_GIB_HOUR: _("Memory time"),
    Meter.GPU_MEMORY_GIB_HOUR: _("GPU memory time"),
    Meter.BILLING_HOUR: _("Billing time"),
}


_MANY = (_("GPU-hours"), _("core-hours"), _("GiB-hours"), _("billing-hours"))
"""What `plural` makes of them."""
_UNITS_OF_RUNS = frozenset(_UNITS.values())


class CustomMeter(str):
    """A meter that the operator declared, by its name; a resource of its own. Compares as its name does."""

    __slots__ = ("label", "unit")

    def __new__(cls, name: str, *, unit: str, label: str) -> Self:
        self = super().__new__(cls, name)
        self.unit = unit
        self.label = label
        return self

    unit: str
    """`million tokens`: as it is read behind a number."""

    label: str
    """What an invoice calls it."""

    @property
    def value(self) -> str:
        return str(self)

    @property
    def resource(self) -> str:
        return str(self)


AnyMeter = Meter | CustomMeter


def is_built_in(meter: str) -> bool:
    """Whether the meter is of what runs hold, rather than one that was declared."""
    return meter in _BUILT_IN


_BUILT_IN = frozenset(Meter)


def meter_of(name: str, *, unit: str, label: str = "") -> AnyMeter:
    """The meter of that name; of a declared one the unit and the label are those that a price or a line has of it."""
    return Meter(name) if is_built_in(name) else CustomMeter(name, unit=unit, label=label)


def plural(unit: str) -> str:
    """The unit behind a number: `GPU-hours`; that of a declared meter is written so as it is."""
    return f"{unit}s" if unit in _UNITS_OF_RUNS else unit


class PriceModel(Protocol):
    """How a total quantity becomes an amount. More use must never cost less, unless its docs say so.

    A model sees the total of a line, never one job, so that tiers and allowances do not depend on
    the order in which jobs arrive.
    """

    @property
    def unit_price(self) -> Decimal | None:
        """The price of one unit (hour) that an invoice prints beside the quantity; None where no one price tells it."""
        ...

    def amount(self, resource_seconds: Fraction, currency: str) -> Money:
        """What that quantity costs, exact: rounding is the statement's."""
        ...


@dataclass(frozen=True, slots=True)
class PerUnit:
    """The same price for every unit. `unit_price` is per hour of the resource, in major units.

    ValueError when it is negative, not finite, or has more than 12 decimals.
    """

    unit_price: Decimal

    def __post_init__(self) -> None:
        price = self.unit_price
        if not isinstance(price, Decimal):
            raise TypeError(f"A price is a Decimal, not {type(price).__name__}.")
        if not price.is_finite():
            raise RuleError("price-not-finite", price=price)
        if price < 0:
            raise RuleError("price-negative", price=price)
        if 10**MAX_PRICE_DECIMALS % Fraction(price).denominator:
            raise RuleError("price-decimals", most=MAX_PRICE_DECIMALS, price=price)

    @property
    def rate(self) -> Fraction:
        """What one resource-second costs, exact."""
        return Fraction(self.unit_price) / SECONDS_PER_HOUR

    def amount(self, resource_seconds: Fraction, currency: str) -> Money:
        """`unit_price` × hours, undivided by any rounding."""
        return Money(self.rate * resource_seconds, currency)
