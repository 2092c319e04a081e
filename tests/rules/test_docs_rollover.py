"""What is left of an allowance, as docs/explanation/amounts.md tells it, computed again by the rules that bill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from zoneinfo import ZoneInfo

from billing.rules.fees import included
from billing.rules.period import period_starting_in, unbroken
from tests.documentation import number, table

PAGE = "explanation/amounts.md"


def test_case_033_what_is_left_rolls_over_once() -> None:
    check_rollover(table(PAGE, "Rollover"))


def test_case_033_what_is_left_lapses_over_a_period_on_another_plan() -> None:
    months = [period_starting_in(2026, month, zone=ZoneInfo("UTC"), anchor_day=1) for month in (1, 2, 3)]
    rows = dict(zip(months, table(PAGE, "Rollover with a period between"), strict=True))
    runs = unbroken(month for month, row in rows.items() if row["on the plan"] == "yes")
    assert len(runs) == 2
    for run_of in runs:
        check_rollover([rows[month] for month in run_of])


def check_rollover(rows: Sequence[Mapping[str, str]]) -> None:
    """Of 100 hours, in periods that follow each other."""
    used = [number(row["used"]) * 3600 for row in rows]
    stands = included(rollover=True, periods=[(Fraction(100), seconds) for seconds in used])
    for row, stand in zip(rows, stands, strict=True):
        shown = [stand.carried, min(stand.used, stand.available), stand.left]
        assert [seconds / 3600 for seconds in shown] == [
            number(row[name]) for name in ("carried", "included", "left")
        ]
