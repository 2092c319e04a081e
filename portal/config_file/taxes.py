"""Rates of tax in a file, and what a tenant and the seller say about their tax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from django.core.validators import validate_slug

from billing.documents import vat_ids
from billing.invoicing import line_taxes
from billing.models import Seller, TaxRate
from portal.config_file.toml_table import Table
from portal.core.tenants.models import COUNTRY, REGION, TaxTreatment, Tenant

SAID = ("country", "region", "tax_treatment", "tax_reason")
"""Columns of a tenant that are empty unless its file says something."""


@dataclass(frozen=True, slots=True)
class RateEntry:
    country: str
    region: str
    category: str
    since: date
    rate: Decimal


def read(table: Table) -> RateEntry | None:
    """One [[tax_rate]]; None where something of it is wrong."""
    country = table.text("country", required=True, check=COUNTRY)
    region = table.text("region", longest=10, check=REGION) or ""
    category = table.text("category", longest=30, check=validate_slug) or "standard"
    since, rate = table.day("from"), percentage(table, "rate", required=True)
    if "from" not in table.data:
        table.wrong("from", "is missing; write the first day of the rate.")
    table.done()
    if not country or since is None or rate is None:
        return None
    return RateEntry(country, region, category, since, rate)


def of_tenant(table: Table) -> dict[str, Any]:
    """What a tenant's table says beside its `tax_rate`."""
    return {
        "country": table.text("country", check=COUNTRY),
        "region": table.text("region", longest=10, check=REGION),
        "tax_treatment": table.choice("tax_treatment", TaxTreatment.values),
        "tax_category": table.text("tax_category", filled=True, longest=30, check=validate_slug),
        "tax_reason": table.text("tax_reason", longest=300),
    }


def percentage(table: Table, key: str, *, required: bool = False) -> Decimal | None:
    """From 0 to 100, 19 for 19 %; None is not said or was refused."""
    rate = table.decimal(key, required=required)
    if rate is None:
        return None
    if not 0 <= rate <= 100 or -int(rate.as_tuple().exponent) > 3:
        table.wrong(key, f"is {rate}; it is a percentage from 0 to 100 with at most three decimals.")
    return rate


def write(entry: RateEntry) -> None:
    """Have the rate begin on its day; one that does already gets this amount."""
    row, _ = TaxRate.objects.get_or_create(
        country=entry.country,
        region=entry.region,
        category=entry.category,
        since=entry.since,
        defaults={"rate": entry.rate},
    )
    if row.rate != entry.rate:
        row.rate = entry.rate
        row.save()


def refusal(tenant: Tenant, said: Mapping[str, Any]) -> str:
    """Why the tenant could not be taxed with these fields; "" where it could. Nothing is changed."""
    wanted = copy(tenant)
    for name, value in said.items():
        setattr(wanted, name, value)
    return line_taxes.of_tenants([], Seller.objects.order_by("pk").first() or Seller()).refusal(wanted)


def refusal_of_seller(seller: Seller) -> str:
    """Why its VAT id cannot be; "" where it can."""
    wrong = vat_ids.problem(seller.vat_id, seller.country)
    return f"vat_id {wrong}" if wrong else ""


def rates_told() -> Iterator[tuple[int, str, dict[str, str]]]:
    """Each with its key, what it is called, and its amount, as `apply` tells changes."""
    for row in TaxRate.objects.order_by("pk"):
        yield row.pk, f"tax rate {row}", {"rate": f"{row.rate.normalize():f} %"}


def told(tenant: Tenant) -> dict[str, str]:
    """What the tenant is taxed by, in the words of the file."""
    category = "" if tenant.tax_category == "standard" else tenant.tax_category
    return {name: getattr(tenant, name) for name in SAID} | {"tax_category": category}
