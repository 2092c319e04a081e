"""Other real clusters: what was allocated comes out as counted by independent means."""

from __future__ import annotations

import json

import pytest

from tests import builders
from tests.scenarios.real import data, run, truth

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("dataset", "file"),
    [
        ("supercloud_dev", "slurm/supercloud_2021-01_2021-03.sacct.gz"),
        pytest.param("fau_alex_fritz", "slurm/fau_alex_fritz_2023-02.sacct.gz", marks=pytest.mark.peers),
        ("ubccr_pozidriv", "slurm/ubccr_pozidriv_2016-12.sacct.gz"),
    ],
)
def test_every_job_is_taken_in_and_every_second_unassigned_until_somebody_owns_it(
    dataset: str, file: str
) -> None:
    total = json.loads(data("truth/summary.json").read_text())[dataset]
    cluster = builders.a_cluster("real")
    result = run("import_usage", "real", data(file))
    assert (result["read"], result["new"], result["quarantined"]) == (total["jobs"], total["jobs"], 0)

    sums = {row["resource"]: row for row in run("prove")["sums"]}
    for resource in ("gpu", "cpu"):
        assert sums[resource]["allocated"] == str(total[f"{resource}_seconds"])
        assert sums[resource]["unassigned"] == str(total[f"{resource}_seconds"])

    months = truth("slurm_account_month_prorated.csv", dataset)
    plan = builders.a_plan(
        prices=[("cpu-core-hour", {}, "0.02", builders.LONG_AGO)],
        charges=["cpu"],
        effective_from=builders.LONG_AGO.replace(year=2016),
    )
    for account in sorted({row["account"] for row in months}):
        builders.a_tenant(
            f"t-{account}",
            plan=plan,
            plan_from=builders.LONG_AGO.replace(year=2016),
            accounts=[(cluster, account)],
        )
    for period in sorted({row["period"] for row in months}):
        sums = {row["resource"]: row for row in run("prove", period)["sums"]}
        of_month = [row for row in months if row["period"] == period]
        assert sums["gpu"]["allocated"] == str(sum(int(row["gpu_seconds"]) for row in of_month))
        assert sums["gpu"]["waived"] == sums["gpu"]["allocated"]
        assert sums["cpu"]["allocated"] == str(sum(int(row["cpu_seconds"]) for row in of_month))
        assert sums["cpu"]["unassigned"] == "0"
    assert run("prove")["holds"]


@pytest.mark.parametrize("timezone", ["America/Los_Angeles", "UTC"])
def test_a_clock_change_costs_nobody_a_second(timezone: str) -> None:
    builders.a_cluster("philly", timezone=timezone)
    result = run("import_usage", "philly", data("slurm/philly_dst_los_angeles.sacct.gz"))
    assert (result["read"], result["new"]) == (54, 54)
    (gpu,) = [row for row in run("prove")["sums"] if row["resource"] == "gpu"]
    assert gpu["allocated"] == "391376"
