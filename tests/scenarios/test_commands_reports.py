"""Op asks at the shell what came of the GPUs, for people, for programs and for a spreadsheet."""

from __future__ import annotations

import csv
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from billing.reports.table import digits
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import Cluster
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.scenarios.reports import worked
from tests.scenarios.test_commands_operator import answer_of, text_of

pytestmark = pytest.mark.django_db

VISION = {
    "tenant": "vision-lab",
    "others": False,
    "standing": "charged",
    "currency": "USD",
    "jobs": 1,
    "gpu_hours": {
        "allocated": "0.857142857142857143",
        "effective": "0.214285714285714286",
        "waste": "0.214285714285714286",
        "unknown": "0.428571428571428571",
    },
    "cost": {
        "allocated": "10.2857142857142857",
        "effective": "2.57142857142857143",
        "waste": "2.57142857142857143",
        "unknown": "5.14285714285714286",
    },
    "other_cost": "0",
    "cost_per_hour": {
        "allocated": "0.0138248847926267281",
        "effective": "0.00345622119815668203",
        "waste": "0.00345622119815668203",
        "unknown": "0.00691244239631336406",
    },
    "coverage_percent": "50",
    "utilisation_percent": "50",
    "sources": [
        {
            "source": "device",
            "metric": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            "gpu_hours": "0.428571428571428571",
        }
    ],
    "top_jobs": [
        {
            "pod": "1",
            "name": "=cmd|x",
            "namespace": "vision",
            "user": "ben",
            "gpu_hours": "0.857142857142857143",
            "cost": "10.2857142857142857",
        }
    ],
}
"""What they are told of the vision lab."""
MARCH = ("--from", "2026-03-01", "--to", "2026-04-01")


@pytest.fixture
def gpu1() -> Cluster:
    """Three slices of a GPU for two hours, at 12.00; somebody whom nobody knows for an hour."""
    cluster = a_cluster()
    plan = a_plan(prices=[("gpu-hour", {}, "12", date(2017, 1, 1))])
    a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])
    ingest(
        cluster,
        a_job(
            job_id="1",
            name="=cmd|x",
            gpus=3,
            gpu_share=(1, 7),
            started="2026-03-02 10:00",
            ended="2026-03-02 12:00",
        ),
        a_job(job_id="2", account="whose"),
        as_of="2026-04-02",
    )
    worked("1", "2026-03-02 10:00", "5400", covered=10_800)
    return cluster


def test_programs_get_every_quantity_as_text_with_its_digits(gpu1: Cluster) -> None:
    answer, code = answer_of("report_cost", "gpu1", *MARCH, "--top-jobs", 5)
    assert code == 0
    assert {
        name: answer[name] for name in ("cluster", "from", "to", "by", "tenant", "hours", "jobs", "margin")
    } == {
        "cluster": "gpu1",
        "from": "2026-03-01T00:00:00Z",
        "to": "2026-04-01T00:00:00Z",
        "by": "tenant",
        "tenant": None,
        "hours": "744",
        "jobs": 2,
        "margin": None,
    }
    vision, nobody = answer["rows"]
    assert vision == VISION
    assert {name: nobody[name] for name in ("tenant", "standing", "currency", "cost", "cost_per_hour")} == {
        "tenant": "", "standing": "unassigned", "currency": None, "cost": None, "cost_per_hour": None,
    }  # fmt: skip
    assert answer["gpu_hours"]["allocated"] == "1.85714285714285714"
    assert answer["cost"] == {"USD": vision["cost"]}
    assert (answer["other_cost"], answer["capacity"]) == ({"USD": "0"}, None)
    assert answer["notes"] == [
        (
            "The capacity in this period is unknown, so idle GPUs are not shown. A connected cluster records its "
            "capacity from the first sync on; for file import, declare the nodes."
        )
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0"),
        ("1/4", "0.25"),
        ("36/7", "5.14285714285714286"),
        ("1/7000", "0.000142857142857142857"),
        ("1/1000", "0.001"),
        ("99999999999999999999/10", "10000000000000000000"),
        ("123456789012345678901", "123456789012345678901"),
        ("-1/3", "-0.333333333333333333"),
    ],
)
def test_eighteen_digits_are_kept_and_whole_numbers_whole(value: str, text: str) -> None:
    assert digits(Fraction(value)) == text


def test_people_get_a_table(gpu1: Cluster) -> None:
    lines = text_of("report_cost", "gpu1", *MARCH, "--by", "pod", "--top-jobs", 5).splitlines()
    assert (
        lines[0] == "gpu1, 2026-03-01T00:00:00Z to 2026-04-01T00:00:00Z, by pod: GPU-hours, then their cost"
    )
    assert lines[3].split() == [
        *("vision-lab", "/", "gpu1", "/", "vision", "/", "ben", "/", "1", "/", "=cmd|x", "/", "a100"),
        *("charged", "0.86", "0.22", "0.21", "0.43", "50", "%"),
    ]
    assert lines[4].split() == ["USD", "10.29", "2.57", "2.57", "5.15"]


def test_a_spreadsheet_gets_a_file_that_runs_nothing(gpu1: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "march.csv"
    text_of("report_cost", "gpu1", *MARCH, "--by", "pod", "--csv", file)
    first, second = csv.DictReader(file.read_text().splitlines())
    assert (first["name"], first["standing"], first["cost_allocated"]) == (
        "'=cmd|x",
        "charged",
        "10.2857142857142857",
    )
    assert (second["pod"], second["standing"], second["cost_allocated"], second["sources"]) == (
        "2",
        "unassigned",
        "",
        "",
    )
    assert (first["coverage_percent"], second["utilisation_percent"], first["sources"]) == (
        "50",
        "",
        "device",
    )


def test_one_tenant_alone(gpu1: Cluster) -> None:
    answer, _ = answer_of("report_cost", "gpu1", *MARCH, "--tenant", "vision-lab", "--by", "namespace")
    assert [(row["cluster"], row["namespace"]) for row in answer["rows"]] == [("gpu1", "vision")]
    assert answer["tenant"] == "vision-lab"


def test_what_is_left_after_the_cost_of_running_it() -> None:
    """Worked example A: four GPUs at 2.00, fully booked for 30 days, that cost 1.00 an hour to run."""
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(gpus=4, started="2026-04-01", ended="2026-05-01"), as_of="2026-05-01")
    nodes = [NodeSeen(name="n1", gpu_model="rtx-4090", gpus=4, state=NodeState.UP)]
    capacity.observe(cluster, nodes, at("2026-04-01"))
    answer, _ = answer_of(
        "report_cost", "gpu1", "--from", "2026-04-01", "--to", "2026-05-01", "--operating-cost", "1.00"
    )
    assert answer["margin"] == {
        "currency": "USD", "revenue": "5760", "operating_cost": "2880", "margin": "2880",
    }  # fmt: skip
    assert answer["capacity"]["gpu_hours"] == {
        "total": "2880", "down": "0", "drained": "0", "idle": "0", "idle_no_demand": "0", "idle_jobs_waiting": "0",
        "allocated": "2880",
    }  # fmt: skip
    text = text_of(
        "report_cost", "gpu1", "--from", "2026-04-01", "--to", "2026-05-01", "--operating-cost", "1.00"
    )
    assert "Margin: 2,880.00 USD = 5,760.00 charged − 2,880.00 to run" in text


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("gpu9", *MARCH), 2, "There is no cluster 'gpu9'; known: gpu1."),
        (("gpu1", *MARCH, "--tenant", "nobody"), 2, "There is no tenant 'nobody'; known: vision-lab."),
        (("gpu1", "--from", "soon", "--to", "2026-04-01"), 2, "'soon' is not a moment"),
        (("gpu1", "--from", "2026-04-01", "--to", "2026-03-01"), 2, "The period ends before it begins"),
        (("gpu1", *MARCH, "--limit", "0"), 2, "--limit takes a number from 1 on"),
        (("gpu1", *MARCH, "--operating-cost", "cheap"), 2, "'cheap' is no cost of a GPU-hour"),
        (("gpu1", *MARCH, "--operating-cost", "1e999999999"), 2, "'1e999999999' is no cost of a GPU-hour"),
        (("gpu1", *MARCH, "--operating-cost", "-1"), 2, "'-1' is no cost of a GPU-hour"),
        (("gpu1", *MARCH, "--by", "pod", "--limit", "9" * 30), 2, "too large"),
        (
            ("gpu1", "--from", "0001-01-01T00:00:00+14:00", "--to", "2026-04-01"),
            2,
            "is too early: there are days",
        ),
        (
            ("gpu1", "--from", "2026-04-01", "--to", "9999-12-31T23:59:59"),
            2,
            "is too late: there are days up",
        ),
        (("gpu1", "--from", "2026-04-01T09:00:00", "--to", "2026-04-01T09:00:00"), 2, "The period ends"),
        (("gpu1", *MARCH, "--operating-cost", "1"), 1, "A margin needs the capacity of the whole period"),
        (
            ("gpu1", *MARCH, "--csv", "/nowhere/at/all.csv"),
            2,
            "cannot be written: No such file or directory.",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    gpu1: Cluster, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    answer, ended = answer_of("report_cost", *arguments)
    assert (sentence in answer["error"], ended) == (True, code)


def test_the_monthly_report_of_each_team() -> None:
    """Worked example D: hours, cost, jobs, the five most expensive, and utilisation weighted by GPU-hours."""
    cluster = a_cluster()
    models = {"a100-80gb": "2.21", "a100-40gb": "1.65", "h100-80gb": "3.75", "l4": "0.81"}
    prices = [
        ("gpu-hour", {"gpu_model": [model]}, price, date(2017, 1, 1)) for model, price in models.items()
    ]
    a_tenant("vision-lab", plan=a_plan(prices=prices), accounts=[(cluster, "vision")])
    ingest(
        cluster,
        *(a_job(job_id=model, name=f"train-{model}", gpu_model=model) for model in models),
        a_job(job_id="big", gpus=64, gpu_model="a100-80gb", name="pretrain"),
        a_job(
            job_id="late", gpus=8, gpu_model="a100-80gb", started="2026-04-01 10:00", ended="2026-04-01 11:00"
        ),
        as_of="2026-05-01",
    )
    worked("big", "2026-03-02 10:00", str(64 * 900), covered=64 * 3600)  # a quarter of 64 hours
    worked("l4", "2026-03-02 10:00", "3600")  # all of one
    answer, _ = answer_of("report_cost", "gpu1", *MARCH, "--by", "tenant", "--top-jobs", 5)
    (team,) = answer["rows"]
    assert (team["gpu_hours"]["allocated"], team["cost"]["allocated"], team["jobs"]) == ("68", "149.86", 5)
    assert [(job["name"], job["cost"]) for job in team["top_jobs"]] == [
        ("pretrain", "141.44"), ("train-h100-80gb", "3.75"), ("train-a100-80gb", "2.21"), ("train-a100-40gb", "1.65"),
        ("train-l4", "0.81"),
    ]  # fmt: skip
    assert (
        team["utilisation_percent"] == "26.1538461538461538"
    )  # (16 + 1) of 65 hours, not the mean of 25 and 100 %
    assert team["gpu_hours"]["unknown"] == "3"
