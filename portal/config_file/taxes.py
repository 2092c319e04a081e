"""Rates of tax in a file, and what a tenant's tax depends on."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from django.core.validators import validate_slug

from billing.invoicing import line_taxes
from billing.models import Seller, TaxRate
from portal.config_file.entries import Entry, Rule, key, save
from portal.config_file.sellers import Country
from portal.core.tenants.models import REGION, Tenant


def _percentage(rate: Decimal) -> None:
    if not 0 <= rate <= 100 or -int(rate.as_tuple().exponent) > 3:
        raise ValueError("it is a percentage from 0 to 100 with at most three decimals.")


Percentage = Annotated[Decimal, Rule(check=_percentage)]
Region = Annotated[str, Rule(longest=10, check=REGION)]
Category = Annotated[str, Rule(longest=30, check=validate_slug)]


class TaxRateEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "tax_rate"
    named_by: ClassVar[str] = "country"
    country: Country
    region: Region = ""
    category: Category = "standard"
    since: Annotated[date, Rule(missing="; write the first day of the rate.")] = key(name="from")
    rate: Percentage

    @property
    def identity(self) -> str:
        return " ".join(filter(None, (self.country, self.region, self.category, f"from {self.since}")))

    def write(self) -> None:
        """Have the rate begin on its day; one that does already gets this amount."""
        columns = self.columns("rate")
        save(TaxRate.objects.filter(**columns).first() or TaxRate(**columns), {"rate": self.rate})


def refusal(tenant: Tenant, columns: Mapping[str, Any]) -> str:
    """Why the tenant could not be taxed with these columns; "" where it could. Nothing is changed."""
    changed = copy(tenant)
    for name, value in columns.items():
        setattr(changed, name, value)
    return line_taxes.load_taxes([], Seller.objects.order_by("pk").first() or Seller()).refusal(changed)
