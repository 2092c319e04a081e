"""Why a cluster is only partly used: what became of its capacity, in GPU-hours and in money.

capacity = down + idle without demand + idle while jobs waited + allocated, and allocated = effective + zero
utilization + low utilization + unknown; of GPU-seconds exactly, and of money by one price for each GPU model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from billing.reports import waste
from billing.reports.shapes import ZERO, Capacity, ModelCapacity
from billing.reports.waste import Finding, Kind, ModelUse, Waste


class Part(StrEnum):
    """Where GPU-hours went. `ALLOCATED` is the sum of those after it, `CAPACITY` of all others."""

    CAPACITY = "capacity"
    DOWN = "down"  # or drained
    NO_DEMAND = "idle-no-demand"
    WAITED = "idle-while-waiting"
    ALLOCATED = "allocated"
    EFFECTIVE = "effective"
    ZERO = "zero"
    LOW = "low"
    UNKNOWN = "unknown"


OF_ALLOCATED = (Part.EFFECTIVE, Part.ZERO, Part.LOW, Part.UNKNOWN)


@dataclass(frozen=True, slots=True)
class CapacityUse:
    """GPU-seconds by part and, where all charges have one currency, their money at the average price of each model."""

    seconds: Mapping[Part, Fraction]
    money: Mapping[Part, Fraction] | None  # in `currency`; None where it cannot be told
    currency: str
    without_price: Sequence[str]  # models that nothing was charged for: their hours have no money

    def share(self, part: Part) -> Fraction | None:
        """Of the capacity; None of none."""
        whole = self.seconds[Part.CAPACITY]
        return self.seconds[part] / whole if whole else None

    @property
    def coverage(self) -> Fraction | None:
        """Part of what was allocated that telemetry covered; None of nothing."""
        whole = self.seconds[Part.ALLOCATED]
        return 1 - self.seconds[Part.UNKNOWN] / whole if whole else None


def of_capacity(capacity: Capacity, use: Waste) -> CapacityUse:
    """Both are of one cluster in the same seconds."""
    currencies = {code for model in use.models.values() for code in model.charged}
    currency = next(iter(currencies)) if len(currencies) == 1 else ""
    seconds: dict[Part, Fraction] = defaultdict(Fraction)
    money: dict[Part, Fraction] = defaultdict(Fraction)
    without = []
    for of in capacity.models:
        parts = _parts(of, use.models.get(of.gpu_model, ModelUse()))
        price = use.models.get(of.gpu_model, ModelUse()).average_price(currency)
        if price is None and of.total:
            without.append(of.gpu_model)
        for part, amount in parts.items():
            seconds[part] += amount
            money[part] += amount * (price or ZERO)
    return CapacityUse(seconds, money if currency else None, currency, without)


def _parts(of: ModelCapacity, use: ModelUse) -> dict[Part, Fraction]:
    return {
        Part.CAPACITY: of.total,
        Part.DOWN: of.down + of.drained,
        Part.NO_DEMAND: of.unwanted,
        Part.WAITED: of.waited,
        Part.ALLOCATED: of.allocated,
        Part.EFFECTIVE: use.effective,
        Part.ZERO: use.zero,
        Part.LOW: use.low,
        Part.UNKNOWN: of.allocated - use.covered,
    }


def with_waiting(capacity: Capacity, use: Waste, jobs: int) -> Waste:
    """The findings with one more where GPUs stood idle while so many jobs waited for them, at the average price."""
    waited = {of.gpu_model: of.waited for of in capacity.models if of.waited}
    if not waited:
        return use
    money: dict[str, Fraction] = defaultdict(Fraction)
    for model, seconds in waited.items():
        of = use.models.get(model, ModelUse())
        for currency in of.charged if len(of.charged) == 1 else ():
            money[currency] += seconds * (of.average_price(currency) or ZERO)
    finding = Finding(Kind.WAITED, sum(waited.values(), ZERO), dict(money), jobs)
    return replace(use, findings=waste.ranked([*use.findings, finding]))
