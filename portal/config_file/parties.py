"""What a file says of seller and tenants as it stands on their documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.validators import validate_email

from billing.models.sellers import PHONE, PREFIX
from portal.config_file.toml_table import Table
from portal.core.tenants.electronic_address import buyer_reference, electronic_address
from portal.core.tenants.models import COUNTRY

Check = Callable[[str], None]

PARTY: Mapping[str, tuple[int, Check | None]] = {
    "postcode": (20, None),
    "city": (100, None),
    "vat_id": (40, None),
    "email": (254, validate_email),
    "electronic_address": (100, electronic_address),
}
SELLER: Mapping[str, tuple[int, Check | None]] = {
    "name": (200, None),
    **PARTY,
    "country": (2, COUNTRY),
    "registration": (200, None),
    "contact_name": (100, None),
    "contact_phone": (40, PHONE),
    "iban": (42, None),
    "bic": (11, None),
    "invoice_prefix": (12, PREFIX),
    "credit_prefix": (12, PREFIX),
    "tax_name": (40, None),
}
TENANT: Mapping[str, tuple[int, Check | None]] = {
    **PARTY,
    "buyer_reference": (100, buyer_reference),
    "purchase_order": (100, None),
}
"""Columns of text, how many characters each holds, and what refuses it."""
FILLED = frozenset({"name", "invoice_prefix", "credit_prefix", "tax_name"})
"""Those of them that are never empty."""


def of_seller(table: Table) -> dict[str, Any]:
    return _texts(table, SELLER)


def of_tenant(table: Table) -> dict[str, Any]:
    return _texts(table, TENANT)


def _texts(table: Table, columns: Mapping[str, tuple[int, Check | None]]) -> dict[str, Any]:
    """With the address; None is not said."""
    read: dict[str, Any] = {
        key: table.text(key, filled=key in FILLED, longest=longest, check=check)
        for key, (longest, check) in columns.items()
    }
    return read | {"address": table.lines("address")}
