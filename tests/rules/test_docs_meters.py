"""The table of declared meters in docs/explanation/amounts.md, computed again by the rules that bill."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from billing.rules.formatting import hours_text
from billing.rules.meters import SECONDS_PER_HOUR, PerUnit
from billing.rules.money import Money
from tests.documentation import number, table


def test_a_unit_takes_the_place_of_the_hour() -> None:
    rows = table("explanation/amounts.md", "Declared meters")
    assert len(rows) == 4
    for row in rows:
        quantity = sum((number(part) for part in row["sums"].split(" + ")), Fraction(0))
        units = quantity / number(row["per unit"]) * SECONDS_PER_HOUR
        assert row["on the invoice"].startswith(f"{hours_text(units)} "), row
        cost = PerUnit(Decimal(row["price per unit"])).amount(units, "USD").rounded()
        assert cost == Money(number(row["amount"]), "USD"), row
