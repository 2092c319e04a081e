"""Why spending changed, as `deploy/mcp/` says it: the parts add up, whatever the fractions."""

from __future__ import annotations

import importlib.util
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from portal.env import ROOT


def _load() -> ModuleType:
    path = ROOT / "deploy" / "mcp" / "clustertab_mcp" / "changes.py"
    spec = importlib.util.spec_from_file_location("mcp_changes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


changes = _load()


def usage(costs: dict[str, str], currency: str = "USD") -> dict[str, Any]:
    groups = [
        {
            "group": {"project": name},
            "used": {"cost": [{"amount": cost, "currency": currency}], "gpu_seconds": "3600"},
        }
        for name, cost in costs.items()
    ]
    return {"buckets": [{"groups": groups}]}


def test_the_parts_of_a_change_add_up_to_it_to_the_cent() -> None:
    before = usage({"vision": "1/3", "speech": "10.00", "gone": "4"})
    after = usage({"vision": "2/3", "speech": "31/3", "new": "1/3"})
    (dollars,) = changes.differences(before, after)
    assert (dollars["earlier"], dollars["later"], dollars["difference"]) == ("14.33", "11.33", "-3.00")
    assert [(part["group"]["project"], part["difference"]) for part in dollars["parts"]] == [
        ("gone", "-4.00"),
        ("new", "0.34"),
        ("speech", "0.33"),
        ("vision", "0.33"),
    ]


def test_a_currency_has_its_own_decimals() -> None:
    (yen,) = changes.differences(usage({"vision": "100"}, "JPY"), usage({"vision": "250.5"}, "JPY"))
    assert (yen["earlier"], yen["later"], yen["difference"]) == ("100", "251", "151")
    (dinar,) = changes.differences(usage({}, "KWD"), usage({"vision": "0.0005"}, "KWD"))
    assert dinar["difference"] == "0.001"


def test_both_totals_and_the_parts_between_them_agree_as_they_are_printed() -> None:
    before = usage({"vision": "0.004", "speech": "0.004"})  # 0.01 in all
    (dollars,) = changes.differences(before, usage({"vision": "0.012", "speech": "0.002"}))
    assert (dollars["earlier"], dollars["later"], dollars["difference"]) == ("0.01", "0.01", "0.00")
    assert [part["difference"] for part in dollars["parts"]] == ["0.00", "0.00"]


@given(
    st.lists(st.fractions(-1000, 1000, max_denominator=5040), min_size=1, max_size=12),
    st.sampled_from([0, 2, 3]),
    st.sampled_from([-1, 0, 1]),
)
def test_amounts_add_up_and_none_is_far_off(parts: list[Fraction], digits: int, more: int) -> None:
    total = changes.rounded(sum(parts, Fraction()), digits) + more
    units = changes.amounts(parts, digits, total)
    assert sum(units) == total
    assert all(abs(unit - part * 10**digits) <= 2 for unit, part in zip(units, parts, strict=True))
    assert [Decimal(changes.text(unit, digits)) * 10**digits for unit in units] == units
