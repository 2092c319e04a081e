"""The curve of a price, with every leap and cliff on it."""

from __future__ import annotations

from billing.rules.curve import Point, cliffs, curve
from billing.rules.meters import PriceModel
from billing.rules.tiers import Volume
from tests.terms import GRADUATED, TENS, TWO_DOLLARS, VOLUME, tiers


def drawn(model: PriceModel) -> list[tuple[str, str]]:
    return [_text(point) for point in curve(model, "USD")]


def _text(point: Point) -> tuple[str, str]:
    return f"{'just above ' if point.just_above else ''}{point.units}", point.amount.rounded().text


def test_case_031_the_curves_of_graduated_and_volume_prices_meet_their_bounds() -> None:
    assert drawn(GRADUATED) == [("0", "0.00"), ("100", "300.00"), ("500", "1300.00"), ("750", "1800.00")]
    assert drawn(VOLUME) == [
        ("0", "0.00"),
        ("100", "300.00"),
        ("just above 100", "250.00"),
        ("500", "1250.00"),
        ("just above 500", "1000.00"),
        ("750", "1500.00"),
    ]


def test_case_031_a_cliff_is_shown_and_none_is_where_prices_rise() -> None:
    pairs = [(_text(at), _text(above)) for at, above in cliffs(curve(VOLUME, "USD"))]
    assert pairs == [
        (("100", "300.00"), ("just above 100", "250.00")),
        (("500", "1250.00"), ("just above 500", "1000.00")),
    ]
    assert cliffs(curve(GRADUATED, "USD")) == []
    dearer = Volume(tiers(("100", "2.00"), (None, "3.00")))
    assert cliffs(curve(dearer, "USD")) == []


def test_packages_are_steps_that_begin_at_once() -> None:
    assert drawn(TENS)[:4] == [
        ("0", "0.00"),
        ("just above 0", "25.00"),
        ("10", "25.00"),
        ("just above 10", "50.00"),
    ]
    assert drawn(TENS)[-1] == ("40", "100.00")


def test_a_price_per_unit_is_a_straight_line() -> None:
    assert drawn(TWO_DOLLARS) == [("0", "0.00"), ("1000", "2000.00")]
