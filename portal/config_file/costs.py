"""What a configuration file says of the cost of running GPUs."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, ClassVar

from billing.reports.operating_costs import Cost
from portal.config_file.entries import Entry, Rule, key


class CostEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "operating_cost"
    cluster: Annotated[str, Rule(longest=100)] = ""
    gpu_model: Annotated[str, Rule(longest=200)] = ""
    currency: str
    amount: Decimal = key(name="per_gpu_hour")
    since: Annotated[date, Rule(missing="; write the UTC day on which it begins.")] = key(name="from")

    @property
    def cost(self) -> Cost:
        return Cost(**self.columns())
