"""Seller and buyer as they are copied onto documents, and their addresses as they are printed."""

from __future__ import annotations

from collections.abc import Mapping

from billing.models import Seller
from portal.core.tenants.models import Tenant

SELLER = (
    *("name", "address", "postcode", "city", "country", "vat_id", "registration"),
    *("email", "contact_name", "contact_phone", "electronic_address"),
    *("iban", "bic", "invoice_prefix", "credit_prefix", "tax_name"),
)
BUYER = (
    *("slug", "name", "address", "postcode", "city", "country", "region", "vat_id"),
    *("email", "electronic_address", "buyer_reference", "purchase_order", "language"),
)
CITY_FIRST = frozenset(("US", "CA", "AU", "GB", "IE", "NZ", "IN"))
"""Countries whose post code stands behind the city."""


def seller_fields(seller: Seller) -> dict[str, str]:
    """What is copied onto a document."""
    return {field: getattr(seller, field) for field in SELLER}


def buyer_fields(tenant: Tenant) -> dict[str, str]:
    """What is copied onto a document of the tenant."""
    return {field: getattr(tenant, field) for field in BUYER}


def address_lines(party: Mapping[str, str]) -> tuple[str, ...]:
    """Of a party as it was copied: its lines, then post code and city as its country writes them."""
    lines = [line for line in party["address"].splitlines() if line.strip()]
    postcode, city, region = (party.get(name, "") for name in ("postcode", "city", "region"))
    if party.get("country") in CITY_FIRST:
        parts = [f"{city}," if city and region else city, region if city else "", postcode]
    else:
        parts = [postcode, city]
    last = " ".join(filter(None, parts))
    return (*lines, last) if last else tuple(lines)
