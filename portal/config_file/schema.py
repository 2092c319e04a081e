"""The shape of a configuration file. What a file does not say stays as it is."""

from __future__ import annotations

import tomllib

from portal.config_file.brand import BrandEntry
from portal.config_file.clusters import ClusterEntry
from portal.config_file.costs import CostEntry
from portal.config_file.entries import Entry, key, read
from portal.config_file.failures import FailureRuleEntry
from portal.config_file.identity_providers import IdentityProviderEntry
from portal.config_file.meters import MeterEntry
from portal.config_file.plan_entries import PlanEntry
from portal.config_file.policies import CloseEntry
from portal.config_file.sellers import SellerEntry
from portal.config_file.sign_up import SignUpEntry
from portal.config_file.taxes import TaxRateEntry
from portal.config_file.tenants import TenantEntry
from portal.config_file.toml_table import ConfigError, Table
from portal.config_file.toml_values import Written
from portal.config_file.waste import WasteRuleEntry
from portal.excerpt import excerpt

__all__ = ["ConfigError", "File", "parse"]


class File(Entry, frozen=True, kw_only=True):
    """All that a file says, in the order in which it is written down."""

    brand: BrandEntry | None = None
    seller: SellerEntry | None = None
    close: CloseEntry | None = None  # of everyone
    sign_up: SignUpEntry | None = None
    costs: list[CostEntry] = key(name="operating_cost", default_factory=list)
    tax_rates: list[TaxRateEntry] = key(name="tax_rate", default_factory=list)
    clusters: list[ClusterEntry] = key(name="cluster", default_factory=list)
    meters: list[MeterEntry] = key(name="meter", default_factory=list)
    plans: list[PlanEntry] = key(name="plan", default_factory=list)
    waste_rules: list[WasteRuleEntry] = key(name="waste_rule", default_factory=list)
    failure_rules: list[FailureRuleEntry] = key(name="failure_rule", default_factory=list)
    tenants: list[TenantEntry] = key(name="tenant", default_factory=list)
    identity_providers: list[IdentityProviderEntry] = key(name="identity_provider", default_factory=list)


def parse(text: str) -> File:
    """The file's content. Raises ConfigError with every mistake that can be seen without the database."""
    try:
        data = tomllib.loads(text, parse_float=Written)
    except (ValueError, RecursionError) as error:  # ValueError alone for a date that is none
        what, at, place = str(error).rpartition(" (at ")  # a key that stands twice is repeated whole
        raise ConfigError(f"This is not TOML: {excerpt(what)}{at}{excerpt(place)}.") from error
    top = Table("the file", data, [])
    file = read(top, File)
    if file is None:
        raise ConfigError(*top.errors)
    return file
