"""The seller in a file, and what it shares with tenants: how a party stands on documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from django.core.validators import validate_email

from billing.documents import vat_ids
from billing.models import Seller
from billing.models.sellers import PHONE, PREFIX
from portal.config_file.entries import Rule, save
from portal.config_file.policies import PolicyEntries
from portal.config_file.toml_table import ConfigError
from portal.config_file.toml_values import lines
from portal.core.tenants.electronic_address import electronic_address
from portal.core.tenants.models import COUNTRY, Corrections, ZeroInvoices

Country = Annotated[str, Rule(check=COUNTRY)]


class PartyEntry(PolicyEntries, frozen=True, kw_only=True):
    """A seller's or a tenant's columns of text."""

    name: Annotated[str, Rule(filled=True, longest=200)] | None = None
    address: Annotated[str, Rule(value=lines)] | None = None
    postcode: Annotated[str, Rule(longest=20)] | None = None
    city: Annotated[str, Rule(longest=100)] | None = None
    country: Country | None = None
    vat_id: Annotated[str, Rule(longest=40)] | None = None
    email: Annotated[str, Rule(longest=254, check=validate_email)] | None = None
    electronic_address: Annotated[str, Rule(longest=100, check=electronic_address)] | None = None


class SellerEntry(PartyEntry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "seller"
    registration: Annotated[str, Rule(longest=200)] | None = None
    contact_name: Annotated[str, Rule(longest=100)] | None = None
    contact_phone: Annotated[str, Rule(longest=40, check=PHONE)] | None = None
    iban: Annotated[str, Rule(longest=42)] | None = None
    bic: Annotated[str, Rule(longest=11)] | None = None
    invoice_prefix: Annotated[str, Rule(filled=True, longest=12, check=PREFIX)] | None = None
    credit_prefix: Annotated[str, Rule(filled=True, longest=12, check=PREFIX)] | None = None
    tax_name: Annotated[str, Rule(filled=True, longest=40)] | None = None
    corrections: Corrections | None = None
    zero_invoices: ZeroInvoices | None = None

    def write(self) -> None:
        """Raises ConfigError, and what the policies raise."""
        self.write_policies(None)
        values = self.columns()
        if not values:
            return
        seller = Seller.objects.order_by("pk").first()
        if seller is None and self.name is None:
            raise ConfigError("name is missing; invoices begin with it.")
        seller = seller or Seller()
        prefixes: Mapping[str, str] = {
            "invoice_prefix": seller.invoice_prefix,
            "credit_prefix": seller.credit_prefix,
        } | values
        if prefixes["invoice_prefix"] == prefixes["credit_prefix"]:
            raise ConfigError("credit_prefix is invoice_prefix; credit notes have a series of their own.")
        save(seller, values)
        if problem := vat_ids.problem(seller.vat_id, seller.country):
            raise ConfigError(f"vat_id {problem}")
