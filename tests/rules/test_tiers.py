"""What a quantity costs at graduated, volume and package prices."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.meters import PerUnit, PriceModel
from billing.rules.money import Money
from billing.rules.price_shares import recomputed, shared
from billing.rules.tiers import Graduated, Package, Tier, Volume, as_terms, first_price, of_terms

HOUR = 3600
STEPS = (
    Tier(Decimal(100), Decimal(3)),
    Tier(Decimal(500), Decimal("2.5")),
    Tier(None, Decimal(2)),
)


def exact(model: PriceModel, hours: str) -> Fraction:
    return model.amount(Fraction(hours) * HOUR, "USD").amount


@pytest.mark.parametrize(
    ("hours", "graduated", "volume"),
    [
        ("0", "0", "0"),
        ("100", "300", "300"),
        ("100.000001", "300.0000025", "250.0000025"),
        ("500", "1300", "1250"),
        ("501", "1302", "1002"),
        ("1000", "2300", "2000"),
    ],
)
def test_case_031_graduated_and_volume_prices(hours: str, graduated: str, volume: str) -> None:
    assert exact(Graduated(STEPS), hours) == Fraction(graduated)
    assert exact(Volume(STEPS), hours) == Fraction(volume)


def test_case_031_the_cliffs_of_a_volume_price_are_told() -> None:
    assert [(str(up_to), at.text, above.text) for up_to, at, above in Volume(STEPS).cliffs("USD")] == [
        ("100", "300.00", "250.00"),
        ("500", "1250.00", "1000.00"),
    ]
    rising = Volume((Tier(Decimal(10), Decimal(1)), Tier(None, Decimal(2))))
    assert rising.cliffs("USD") == []


@pytest.mark.parametrize(
    ("hours", "packages", "amount"),
    [("0", 0, "0"), ("0.000001", 1, "25"), ("10", 1, "25"), ("10.000001", 2, "50"), ("95", 10, "250")],
)
def test_case_032_a_unit_more_is_a_package_more_and_none_is_none(
    hours: str, packages: int, amount: str
) -> None:
    model = Package(size=Decimal(10), price=Decimal(25))
    assert model.packages(Fraction(hours) * HOUR) == packages
    assert exact(model, hours) == Fraction(amount)


def prices() -> st.SearchStrategy[Decimal]:
    return st.decimals(0, 1000, places=4)


def tiers(draw: Any) -> tuple[Tier, ...]:
    bounds = sorted(draw(st.sets(st.decimals(1, 10_000, places=3), max_size=4)))
    return (*(Tier(bound, draw(prices())) for bound in bounds), Tier(None, draw(prices())))


@st.composite
def models(draw: Any) -> PriceModel:
    kind = draw(st.sampled_from(["per unit", "graduated", "package"]))
    if kind == "graduated":
        return Graduated(tiers(draw))
    if kind == "package":
        return Package(draw(st.decimals(1, 1000, places=3)), draw(prices()))
    return PerUnit(draw(prices()))


quantities = st.fractions(0, 10**8, max_denominator=1024)


@given(model=models(), use=quantities, more=quantities)
def test_more_use_never_costs_less(model: PriceModel, use: Fraction, more: Fraction) -> None:
    assert model.amount(use + more, "USD") >= model.amount(use, "USD")


@st.composite
def volumes(draw: Any) -> Volume:
    return Volume(tiers(draw))


@given(model=volumes(), use=quantities, more=quantities)
def test_except_where_a_volume_price_says_so(model: Volume, use: Fraction, more: Fraction) -> None:
    """Only by passing a bound that `cliffs` tells of does more use cost less."""
    if model.amount(use + more, "USD") < model.amount(use, "USD"):
        ends = [Fraction(up_to) * HOUR for up_to, _, _ in model.cliffs("USD")]
        assert any(use <= end < use + more for end in ends)


@given(model=st.one_of(models(), volumes()))
def test_a_model_is_read_as_it_was_written(model: PriceModel) -> None:
    assert as_terms(of_terms(as_terms(model))) == as_terms(model)
    assert of_terms(as_terms(model)).amount(Fraction(123_456), "USD") == model.amount(
        Fraction(123_456), "USD"
    )


@given(
    model=st.one_of(models(), volumes()),
    used=st.lists(quantities, min_size=1, max_size=5),
    part=st.fractions(0, 1, max_denominator=7),
)
def test_projects_share_an_amount_to_the_cent(
    model: PriceModel, used: list[Fraction], part: Fraction
) -> None:
    included = sum(used, Fraction(0)) * part
    owed = shared(dict(enumerate(used)), model, "USD", included=included)
    whole = model.amount(sum(used, Fraction(0)) - included, "USD").rounded()
    assert sum((value.amount("USD") for value in owed.values()), Money.zero("USD")) == whole
    for value in owed.values():
        assert value.share is not None
        assert recomputed(value.share.terms, "USD") == whole


def test_a_project_bears_its_part_of_the_tiers() -> None:
    owed = shared({"audio": Fraction(100 * HOUR), "vision": Fraction(200 * HOUR)}, Graduated(STEPS), "USD")
    assert [value.amount("USD").text for value in owed.values()] == ["266.67", "533.33"]  # of 800.00


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"model": "graduated", "tiers": []}, "The last tier is open"),
        ({"model": "graduated", "tiers": [{"up_to": "5", "unit_price": "1"}]}, "The last tier is open"),
        (
            {"model": "volume", "tiers": [{"unit_price": "1"}, {"unit_price": "2"}]},
            "Only the last tier is open",
        ),
        (
            {"model": "volume", "tiers": [*[{"up_to": "5", "unit_price": "1"}] * 2, {"unit_price": "2"}]},
            "Tiers rise: 5 does not come after 5",
        ),
        ({"model": "volume", "tiers": [{"unit_price": "-1"}]}, "zero or more"),
        ({"model": "volume", "tiers": [{"unit_price": 1.5}]}, "not exact"),
        (
            {"model": "graduated", "tiers": [{"up_to": "0", "unit_price": "1"}, {"unit_price": "2"}]},
            "more than zero",
        ),
        ({"model": "package", "size": "0", "price": "1"}, "more than zero"),
        ({"model": "package", "size": "0.0000001", "price": "1"}, "at most 6 decimals"),
        ({"model": "package", "size": "ten", "price": "1"}, "'ten' is no number"),
        (
            {"model": "package", "size": "1e-999999999", "price": "1"},
            "'1e-999999999' is no number; write it like",
        ),
        (
            {"model": "per_unit", "unit_price": "1e999999999"},
            "'1e999999999' is no number; write it like 1.10",
        ),
        ({"model": "package"}, "say no price"),
        ({"model": "guess"}, "'guess' is not a valid"),
    ],
)
def test_case_042_what_is_no_price_model_is_refused(terms: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        of_terms(terms)


def test_use_is_valued_at_the_first_units_price_until_it_is_totalled() -> None:
    assert first_price(Graduated(STEPS)) == 3
    assert first_price(Package(Decimal(3), Decimal(10))) == Fraction(10, 3)
    assert first_price(PerUnit(Decimal("1.5"))) == Fraction(3, 2)


def test_more_than_all_cannot_be_included() -> None:
    with pytest.raises(ValueError, match="cannot be included"):
        shared({"vision": Fraction(10)}, PerUnit(Decimal(1)), "USD", included=Fraction(11))
