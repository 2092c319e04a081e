"""The figures of docs/explanation/amounts.md on corrected prices, computed again by the rules that bill."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from billing.rules.meters import PerUnit
from billing.rules.statement_lines import Billed, Owed, statement
from tests.documentation import number, table
from tests.rules.test_docs_tables import OCTOBER, PAGE, key


def test_a_corrected_price() -> None:
    for row in table(PAGE, "A corrected price"):
        before, now = (PerUnit(Decimal(row[name])) for name in ("price then", "price now"))
        seconds, late = (number(row[name]) * 3600 for name in ("hours billed", "late hours"))
        lines = statement(
            owed={key(): Owed(seconds + late, now)},
            billed={key(): Billed(seconds, before.amount(seconds, "USD").rounded(), before.unit_price)},
            period=OCTOBER,
            currency="USD",
        )
        texts = {line.former_price is not None: line.amount.text for line in lines}
        assert texts[True] == row["line of the price"]
        assert texts.get(False, "none") == row["line of the late hours"]
        assert [line.resource_seconds for line in lines] == [Fraction(0), late][: len(lines)]
