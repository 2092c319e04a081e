"""Three months of a real cluster: 74,167 jobs of fifteen accounts, billed to the second and the cent."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.scenarios.real import PRICES, cents, data, gpu_seconds_by_month, run, truth

pytestmark = pytest.mark.django_db

FULL = "slurm/philly_2017-09_2017-11.sacct.gz"
MONTHS = ("2017-09", "2017-10", "2017-11")


@pytest.fixture
def philly() -> Path:
    """Every account is a tenant of its own; a GPU-hour has one price per GPU type."""
    path = data(FULL)
    cluster = builders.a_cluster("philly")
    plan = builders.a_plan(
        prices=[
            ("gpu-hour", {"gpu_model": ["g12"]}, "1.10", date(2017, 1, 1)),
            ("gpu-hour", {"gpu_model": ["g24"]}, "2.30", date(2017, 1, 1)),
        ]
    )
    for account in sorted({account for account, _, _ in gpu_seconds_by_month(path)}):
        builders.a_tenant(account, plan=plan, accounts=[(cluster, account)])
    return path


def billed(month: str) -> dict[str, dict[str, dict[str, Any]]]:
    """tenant → description → line of the month's invoices, each of whose feet must add up."""
    answer: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for invoice in run("show_invoices", "--month", month)["invoices"]:
        assert invoice["subtotal"] == invoice["total"]
        in_cents = [int(line["amount"].replace(".", "")) for line in invoice["lines"]]
        assert sum(in_cents) == int(invoice["total"].replace(".", ""))
        for line in invoice["lines"]:
            answer[invoice["tenant"]][line["description"]] = line
    return dict(answer)


def expected(path: Path, month: str) -> dict[str, dict[str, tuple[str, str]]]:
    """tenant → description → (GPU-seconds, amount), recomputed from the file itself."""
    lines: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for (account, at, model), seconds in gpu_seconds_by_month(path).items():
        if at == month and seconds:
            amount = cents(seconds, PRICES[model])
            lines[account][f"GPU time, {model}"] = (str(seconds), f"{amount // 100}.{amount % 100:02d}")
    return dict(lines)


def as_billed(month: str) -> dict[str, dict[str, tuple[str, str]]]:
    return {
        tenant: {text: (line["resource_seconds"], line["amount"]) for text, line in lines.items()}
        for tenant, lines in billed(month).items()
    }


def close(month: str) -> None:
    answer = run("close_period", month)
    assert {row["outcome"] for row in answer["tenants"]} <= {"issued", "nothing to bill"}


def test_three_months_are_billed_to_the_second_and_the_cent(philly: Path) -> None:
    taken = run("import_usage", "philly", philly)
    assert (taken["read"], taken["new"], taken["quarantined"]) == (74_167, 74_167, 0)
    again = run("import_usage", "philly", philly)
    assert (again["new"], again["revised"], again["unchanged"]) == (0, 0, 74_167)

    for month in MONTHS:
        close(month)
        assert as_billed(month) == expected(philly, month)
        per_account: dict[str, int] = {
            tenant: sum(int(line["resource_seconds"]) for line in lines.values())
            for tenant, lines in billed(month).items()
        }
        assert per_account == {
            row["account"]: int(row["gpu_seconds"])
            for row in truth("slurm_account_month_prorated.csv", "philly_2017-09_2017-11")
            if row["period"] == month and row["gpu_seconds"] != "0"
        }

    everything = run("prove", "--source", philly)
    (gpu,) = [row for row in everything["sums"] if row["resource"] == "gpu"]
    assert everything["holds"]
    assert (gpu["allocated"], gpu["billed"], gpu["pending"]) == ("3221884955", "3144715514", "77169441")
    october = run("prove", "2017-10")
    (gpu,) = [row for row in october["sums"] if row["resource"] == "gpu"]
    assert (gpu["allocated"], gpu["billed"], gpu["unowned"]) == ("1591443406", "1591443406", "0")
    assert october["holds"]


def test_snapshots_of_running_jobs_bill_no_second_twice_and_lose_none(philly: Path) -> None:
    first = data("slurm/philly_asof_2017-11-01.sacct.gz")
    second = data("slurm/philly_asof_2017-12-01.sacct.gz")
    so_far = {"2017-11-01": 2_079_548_691, "2017-12-01": 3_144_715_514}

    assert run("import_usage", "philly", first)["as_of"] == "2017-11-01T00:00:00Z"
    assert gpu_seconds_allocated() == so_far["2017-11-01"]
    close("2017-09")
    close("2017-10")
    october = as_billed("2017-10")
    assert october == expected(philly, "2017-10")

    taken = run("import_usage", "philly", second)
    assert (taken["new"], taken["revised"]) == (74_167 - 52_849, 252)
    assert gpu_seconds_allocated() == so_far["2017-12-01"]
    close("2017-11")
    assert as_billed("2017-11") == expected(philly, "2017-11")

    taken = run("import_usage", "philly", philly)
    assert (taken["new"], taken["revised"], taken["unchanged"]) == (0, 126, 74_167 - 126)
    assert as_billed("2017-10") == october
    assert run("prove")["holds"]
    assert gpu_seconds_allocated() == 3_221_884_955

    stale = run("import_usage", "philly", first)
    assert (stale["new"], stale["revised"], stale["unchanged"]) == (0, 0, 52_849)
    assert gpu_seconds_allocated() == 3_221_884_955


def gpu_seconds_allocated() -> int:
    (gpu,) = [row for row in run("prove")["sums"] if row["resource"] == "gpu"]
    return int(gpu["allocated"])
