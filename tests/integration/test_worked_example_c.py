"""Worked example C against a real Prometheus: slices of A100s, what they are billed, and what came of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_seller
from tests.documentation import DOCS
from tests.integration.prom_lab import Lab
from tests.scenarios.configuring import Op, run_json
from tests.stories import closed, invoice_of, total

pytestmark = pytest.mark.usefixtures("transactional_db")

SITE = """
[[cluster]]
name = "kube"
kind = "prometheus"
[cluster.connection]
url = "{url}"
first_usage_from = 2025-02-27
options = {{ account_from = "namespace"{utilisation} }}

[[plan]]
name = "slices"
currency = "USD"
charges = ["gpu"]
[[plan.price]]
meter = "gpu-hour"
unit_price = "12"
from = 2025-01-01
"""
TENANT = """
[[tenant]]
slug = "{name}"
name = "{name}"
plan = "slices"
plan_from = 2025-01-01
accounts = [{{ cluster = "kube", account = "{name}" }}]
"""
UNITS = ("bu-a", "bu-b", "bu-c")
SLICES = {"bu-a": 3, "bu-b": 2, "bu-c": 2}
CONFIGURED = {
    "as it comes": "",
    "scope cluster": ', utilisation = { scope = "cluster", metric = "DCGM_FI_PROF_GR_ENGINE_ACTIVE" }',
    "scope cluster, divisor 100": (
        ', utilisation = { scope = "cluster", metric = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", divisor = 100 }'
    ),
}
HOUR = ("--from", "2025-02-27T01:00:00Z", "--to", "2025-02-27T02:00:00Z")
# Dollars an hour, as published; the divisor 100 makes them of a ratio.
PUBLISHED = {
    "bu-a": ("0.002325599081632653", "5.14053154377551"),
    "bu-b": ("0.0015503993877551022", "3.427021029183673"),
    "bu-c": ("0.0015503993877551022", "3.427021029183673"),
}


def pulled(lab: Lab, folder: Path, configuration: str) -> None:
    """The cluster connected so, and all of the lab's history read."""
    site = SITE.format(url=lab.url, utilisation=CONFIGURED[configuration])
    Op(folder).applies(site + "".join(TENANT.format(name=name) for name in UNITS))
    answer = run_json("pull_usage", "kube", "--since", "2025-02-27", "--until", "2025-03-01T00:00:00Z")
    assert (answer["outcome"], answer["error"]) == ("done", None)


def rates(*period: str) -> dict[str, dict[str, Any]]:
    """By unit the report's row."""
    answer = run_json("report_cost", "kube", *(period or HOUR), "--by", "namespace")
    rows: list[dict[str, Any]] = answer["rows"]
    return {row["namespace"]: row for row in rows if row["namespace"] in UNITS}


def near(text: str, value: str | Fraction) -> bool:
    """To 1e-9 of it."""
    return abs(Fraction(text) - Fraction(value)) <= Fraction(value) / 10**9


@pytest.mark.parametrize("configuration", CONFIGURED)
def test_an_hour_of_slices_comes_out_as_the_docs_say(
    pushed_lab: Lab,
    tmp_path: Path,
    configuration: str,
) -> None:
    a_seller()
    pulled(pushed_lab, tmp_path, configuration)
    rows = rates()
    parts = ("allocated", "effective", "waste", "unknown")
    shown = {unit: tuple(shortened(rows[unit]["cost_per_hour"][part]) for part in parts) for unit in UNITS}
    assert shown == documented()[configuration]
    for unit in UNITS:
        assert near(rows[unit]["cost_per_hour"]["allocated"], Fraction(12 * SLICES[unit], 7))
        if configuration == "as it comes":
            assert (rows[unit]["coverage_percent"], rows[unit]["sources"]) == ("0", [])
            continue
        effective, waste = PUBLISHED[unit]
        if configuration == "scope cluster":  # what the formula says before it divides a ratio by 100
            effective = str(Fraction(effective) * 100)
            waste = str(Fraction(12 * SLICES[unit], 7) - Fraction(effective))
        assert near(rows[unit]["cost_per_hour"]["effective"], Fraction(effective))
        assert near(rows[unit]["cost_per_hour"]["waste"], Fraction(waste))
        assert [of["source"] for of in rows[unit]["sources"]] == ["cluster"]


def test_february_is_invoiced_for_the_49_hours(
    pushed_lab: Lab,
    tmp_path: Path,
) -> None:
    a_seller()
    pulled(pushed_lab, tmp_path, "scope cluster")
    assert Cluster.objects.get().complete_through == datetime(2025, 3, 1, tzinfo=UTC)
    totals = {}
    for unit in UNITS:
        tenant = Tenant.objects.get(slug=unit)
        assert closed("2025-02", tenant, accept="the lab's outages are known").outcome == "issued"
        totals[unit] = total(invoice_of(tenant, "2025-02"))
    assert totals == {"bu-a": "252.00", "bu-b": "168.00", "bu-c": "168.00"}
    february = rates("--from", "2025-02-01", "--to", "2025-03-01")
    assert {unit: february[unit]["cost"]["allocated"] for unit in UNITS} == {
        "bu-a": "252",
        "bu-b": "168",
        "bu-c": "168",
    }


def documented() -> dict[str, dict[str, tuple[str, ...]]]:
    """The table of docs/explanation/efficiency.md: configuration → unit → dollars an hour."""
    hourly_prices: dict[str, dict[str, tuple[str, ...]]] = {}
    text = (DOCS / "explanation/efficiency.md").read_text()
    for row in re.findall(r"^\| ([a-z][\w, ]*) \| (bu-[abc]) \| (.*) \|$", text, re.MULTILINE):
        hourly_prices.setdefault(row[0], {})[row[1]] = tuple(row[2].split(" | "))
    return hourly_prices


def shortened(text: str) -> str:
    """To six decimals, as the docs write them."""
    return "0" if Fraction(text) == 0 else f"{Decimal(text):.6f}"
