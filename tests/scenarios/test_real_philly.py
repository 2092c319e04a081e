"""Three months of a real cluster: 74,167 jobs of fifteen accounts, billed to the second and the cent."""

from __future__ import annotations

import gzip
from collections import defaultdict
from dataclasses import dataclass
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


@pytest.mark.peers  # half a minute; by default other clusters' records stand for it
def test_three_months_are_billed_to_the_second_and_the_cent(philly: Path) -> None:
    result = run("import_usage", "philly", philly)
    assert (result["read"], result["new"], result["quarantined"]) == (74_167, 74_167, 0)
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
    assert (gpu["allocated"], gpu["billed"], gpu["unassigned"]) == ("1591443406", "1591443406", "0")
    assert october["holds"]


@dataclass(frozen=True)
class Snapshots:
    """Jobs and GPU-seconds of the files of 1 November, 1 December and later; `open`: the jobs that ran at each."""

    jobs: tuple[int, int, int]
    open: tuple[int, int]
    seconds: tuple[int, int, int]
    without: frozenset[str] = frozenset()


OF_ALL = Snapshots((52_849, 74_167, 74_167), (252, 126), (2_079_548_691, 3_144_715_514, 3_221_884_955))
OF_ELEVEN = Snapshots(
    (3_351, 6_454, 6_454), (200, 45), (1_361_024_982, 2_106_060_121, 2_139_312_147),
    without=frozenset({"vc-b436b2", "vc-6c71a0", "vc-11cb48", "vc-6214e9"}),
)  # fmt: skip


@pytest.mark.parametrize(
    "that",
    [
        pytest.param(OF_ELEVEN, id="eleven accounts", marks=pytest.mark.peers),
        pytest.param(OF_ALL, id="all", marks=pytest.mark.long),
    ],
)
def test_snapshots_of_running_jobs_bill_no_second_twice_and_lose_none(
    that: Snapshots, philly: Path, tmp_path: Path
) -> None:
    names = ("slurm/philly_asof_2017-11-01.sacct.gz", "slurm/philly_asof_2017-12-01.sacct.gz", FULL)
    first, second, whole = (cut(data(name), tmp_path, that.without) for name in names)

    assert run("import_usage", "philly", first)["as_of"] == "2017-11-01T00:00:00Z"
    assert gpu_seconds_allocated() == that.seconds[0]
    close("2017-09")
    close("2017-10")
    october = as_billed("2017-10")
    assert october == expected(whole, "2017-10")

    result = run("import_usage", "philly", second)
    assert (result["new"], result["revised"]) == (that.jobs[1] - that.jobs[0], that.open[0])
    assert gpu_seconds_allocated() == that.seconds[1]
    close("2017-11")
    assert as_billed("2017-11") == expected(whole, "2017-11")

    result = run("import_usage", "philly", whole)
    counted = (result["new"], result["revised"], result["unchanged"])
    assert counted == (0, that.open[1], that.jobs[2] - that.open[1])
    assert as_billed("2017-10") == october
    assert run("prove")["holds"]
    assert gpu_seconds_allocated() == that.seconds[2]

    stale = run("import_usage", "philly", first)
    assert (stale["new"], stale["revised"], stale["unchanged"]) == (0, 0, that.jobs[0])
    assert gpu_seconds_allocated() == that.seconds[2]


def cut(path: Path, folder: Path, without: frozenset[str]) -> Path:
    """The same file without the rows of some accounts."""
    if not without:
        return path
    with gzip.open(path, "rt") as whole, gzip.open(folder / path.name, "wt", compresslevel=1) as part:
        for line in whole:
            if line.split("|")[4] not in without:
                part.write(line)
    return folder / path.name


def gpu_seconds_allocated() -> int:
    (gpu,) = [row for row in run("prove")["sums"] if row["resource"] == "gpu"]
    return int(gpu["allocated"])
