"""Whose tax a supply falls under: the countries of seller and buyer, and what both are registered as.

What is sold is a service that is supplied electronically. Between businesses it is taxed where the buyer is
(Directive 2006/112/EC, article 44), to others within the EU too (article 58); the buyer's country taxes what
leaves it by its own law.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from billing.rules.errors import SENTENCES
from billing.rules.tax import Tax
from portal.errors import CodedError
from portal.excerpt import quoted

_STATES = """
    AT BE BG CY CZ DE DK EE ES FI FR GR HR HU
    IE IT LT LU LV MT NL PL PT RO SE SI SK
"""
EU = frozenset(_STATES.split())
"""The member states, as ISO 3166-1 has them; Greece's VAT ids begin with EL."""

_AMERICAN = """
    AK AL AR AZ CA CO CT DC DE FL GA HI IA ID IL IN KS KY LA MA MD ME MI MN MO MS MT NC ND
    NE NH NJ NM NV NY OH OK OR PA RI SC SD TN TX UT VA VT WA WI WV WY AS GU MP PR UM VI
"""
BY_REGION: Mapping[str, frozenset[str]] = {"US": frozenset(_AMERICAN.split())}
"""Countries without a tax of their own, with their states: one that is not listed asks none of this seller."""

NOTHING = Decimal(0)


def _(text: str) -> str:
    """Marks a text for gettext, which translates it where it is shown."""
    return text


REASONS: Mapping[str, str] = {
    "AE": _("Reverse charge: the recipient is liable for the VAT (Article 196 of Directive 2006/112/EC)."),
    "G": _(
        "Supplied to a recipient outside the EU: not subject to VAT here (Articles 44 and 59 of Directive "
        "2006/112/EC)."
    ),
    "O": _("Outside the scope of tax."),
    "E": _("Exempt from tax."),
}
"""What an invoice says where a category charges no tax, unless its tenant has words of its own."""


class TaxError(CodedError):
    """How something is taxed is not certain; its sentence says what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Party:
    """`country`: ISO 3166-1, two letters; `region`: of a state; `vat_id`: as it is printed. "" for none."""

    country: str
    region: str = ""
    vat_id: str = ""

    @property
    def in_eu(self) -> bool:
        return self.country in EU


@dataclass(frozen=True, slots=True)
class Rate:
    """What a country, or a region of it, takes of a category from a day on, in per cent, until its next rate."""

    country: str
    region: str
    category: str
    since: date
    rate: Decimal


class Rates:
    """All rates that are listed."""

    def __init__(self, rates: list[Rate]) -> None:
        self._by_place: dict[tuple[str, str, str], list[Rate]] = {}
        for rate in sorted(rates, key=lambda rate: rate.since):
            self._by_place.setdefault((rate.country, rate.region, rate.category), []).append(rate)

    def on(self, day: date, *, country: str, category: str, region: str = "") -> Decimal | None:
        """In per cent; the region's where it has one, else the country's; None where none is listed."""
        for where in dict.fromkeys((region, "")):
            holding = [
                rate for rate in self._by_place.get((country, where, category), []) if rate.since <= day
            ]
            if holding:
                return holding[-1].rate
        return None


def may_reverse_charge(seller: Party, buyer: Party) -> bool:
    """Both are registered for VAT, in two states of the EU."""
    return bool(
        seller.in_eu and buyer.in_eu and seller.country != buyer.country and seller.vat_id and buyer.vat_id
    )


def taxed_by_country(*, seller: Party, buyer: Party, category: str, on: date, rates: Rates) -> Tax:
    """How what was supplied on that day is taxed. Raises TaxError where a rate or a country is missing.

    Within one country, and to buyers elsewhere in the EU without a VAT id, the rate of the buyer's country;
    to registered buyers elsewhere in the EU reverse charge; from the EU to outside of it, and to other
    countries than the seller's outside of the EU, none.
    """
    if not seller.country or not buyer.country:
        raise TaxError("tenant-country-missing" if seller.country else "seller-country-missing")
    if may_reverse_charge(seller, buyer):
        return Tax("AE", NOTHING)
    if seller.country != buyer.country and not (seller.in_eu and buyer.in_eu):
        return Tax("G" if seller.in_eu else "O", NOTHING)
    if seller.in_eu and not seller.vat_id:
        raise TaxError("seller-vat-id-missing")
    rate = rates.on(on, country=buyer.country, category=category, region=buyer.region)
    if rate is None and buyer.country in BY_REGION:
        _state(buyer)
        return Tax("O", NOTHING)
    if rate is None:
        raise TaxError("tax-rate-missing", country=buyer.country, category=quoted(category), on=on)
    return Tax("S" if rate else "Z", rate)


def _state(buyer: Party) -> None:
    """Nobody is untaxed by an oversight: raises TaxError where the state is missing, or none of its country."""
    if buyer.region not in BY_REGION[buyer.country]:
        code = "tax-region-unknown" if buyer.region else "tax-region-missing"
        raise TaxError(code, region=quoted(buyer.region), country=buyer.country)
