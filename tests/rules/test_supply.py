"""Whose tax a supply falls under: docs/explanation/taxes.md, computed again."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from billing.documents import vat_ids
from billing.rules.money import Money
from billing.rules.supply import Party, Rate, Rates, TaxError, may_reverse_charge, taxed_by_country
from billing.rules.tax import tax_on
from tests.documentation import table

PAGE = "explanation/taxes.md"
RATES = Rates(
    [
        Rate(
            row["country"],
            row["region"],
            row["category"],
            date.fromisoformat(row["from"]),
            Decimal(row["per cent"]),
        )
        for row in table(PAGE, "Rates of the example")
    ]
)
MARCH = date(2026, 3, 31)
NORTH = Party("DE", vat_id="DE136695976")


def party(place: str, vat_id: str) -> Party:
    country, _, region = place.partition("-")
    return Party(country, region, vat_id)


@pytest.mark.parametrize("row", table(PAGE, "What 100.00 is taxed with"), ids=str)
def test_what_the_page_says_of_100(row: dict[str, str]) -> None:
    taxed = taxed_by_country(
        seller=party(row["seller"], row["seller's VAT id"]),
        buyer=party(row["tenant"], row["tenant's VAT id"]),
        category=row["category"],
        on=date.fromisoformat(row["supplied on"]),
        rates=RATES,
    )
    tax = tax_on(Money.of("100.00", "EUR"), rate=taxed.rate)
    assert (taxed.category, f"{taxed.rate.normalize():f}", tax.text) == (row["as"], row["rate"], row["tax"])


def test_a_rate_holds_from_its_day_on() -> None:
    days = ("2006-12-31", "2007-01-01", "2020-06-30", "2020-07-01", "2020-12-31", "2021-01-01")
    rates = [RATES.on(date.fromisoformat(day), country="DE", category="standard") for day in days]
    assert [str(rate) for rate in rates] == ["None", "19", "19", "16", "16", "19"]


@pytest.mark.parametrize(
    ("seller", "buyer", "sentence"),
    [
        (Party(""), Party("DE"), "the seller has no country"),
        (NORTH, Party(""), "the tenant has no country"),
        (Party("DE"), Party("DE"), "the seller has no VAT id"),
        (Party("US"), Party("US"), "the tenant has no state in US, on which its tax depends"),
        (Party("US"), Party("US", "California"), "'California' is no state of US, on which its tax depends"),
        (Party("US"), Party("US", "ca"), "give it a `region` of two letters, such as CA"),
        (NORTH, Party("ES"), "no rate of ES for 'standard' holds on 2026-03-31"),
    ],
)
def test_what_nobody_listed_is_refused(seller: Party, buyer: Party, sentence: str) -> None:
    with pytest.raises(TaxError, match=sentence):
        taxed_by_country(seller=seller, buyer=buyer, category="standard", on=MARCH, rates=RATES)


def test_reverse_charge_takes_two_states_and_two_vat_ids() -> None:
    buyer = Party("FR", vat_id="FR40303265045")
    assert may_reverse_charge(NORTH, buyer)
    assert not may_reverse_charge(NORTH, Party("FR"))
    assert not may_reverse_charge(Party("DE"), buyer)
    assert not may_reverse_charge(NORTH, Party("DE", vat_id="DE136695976"))
    assert not may_reverse_charge(NORTH, Party("CH", vat_id="CHE107787577IVA"))
    assert not may_reverse_charge(Party("GB", vat_id="GB980780684"), buyer)


@pytest.mark.parametrize(
    ("vat_id", "country", "wrong"),
    [
        ("DE136695976", "DE", ""),
        ("de 136 695 976", "DE", ""),
        ("EL094259216", "GR", ""),
        ("ATU13585627", "AT", ""),
        ("", "DE", ""),
        ("anything", "US", ""),
        (
            "DE136695975",
            "DE",
            "is 'DE136695975', which is no VAT id of DE: its form or its check digits do not fit.",
        ),
        ("DE12", "DE", "is 'DE12', which is no VAT id of DE: its form or its check digits do not fit."),
        ("GR094259216", "GR", "is 'GR094259216', and one of GR begins with EL."),
        ("DE136695976", "FR", "is 'DE136695976', and one of FR begins with FR."),
        ("136695976", "DE", "is '136695976', and one of DE begins with DE."),
        ("CHE107787577IVA", "DE", "is 'CHE107787577IVA', and one of DE begins with DE."),
        ("-", "GR", "is '-', and one of GR begins with EL."),
    ],
)
def test_a_vat_id_has_its_countrys_form_and_check_digits(vat_id: str, country: str, wrong: str) -> None:
    assert vat_ids.problem(vat_id, country) == wrong
