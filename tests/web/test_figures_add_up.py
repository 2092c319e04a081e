"""What a page shows as parts adds up to what it shows as their whole, to the last cent and hundredth of an hour."""

from __future__ import annotations

import random
import re
from datetime import timedelta
from fractions import Fraction

import pytest

from billing.reports import efficiency_snapshots
from billing.reports.shapes import By
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from portal.core.outbox import outbox
from portal.core.tenants.models import User
from tests import builders
from tests.scenarios.reports import worked
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

ANNS, OPS = "/t/vision-lab/efficiency/", "/operator/reports/"
RANGES = [("2026-03-01", "2026-03-31"), ("2026-03-03", "2026-03-09"), ("2026-03-05", "2026-03-05")]
PRICES = [
    ("gpu-hour", {"gpu_model": [model]}, price, builders.LONG_AGO)
    for model, price in (("a100", "2.2131"), ("h100", "3.7577"), ("l4", "0.8109"))
]
HOURS = ("Allocated", "Effective", "Waste", "Unknown")


@pytest.fixture
def ann() -> User:
    """Of a lab with jobs on slices, of odd lengths and prices, of which telemetry covered some; others have more."""
    cluster = builders.a_cluster()
    accounts = [(cluster, "vision")]
    lab = builders.a_tenant("vision-lab", plan=builders.a_plan(prices=PRICES), accounts=accounts)
    builders.a_tenant(
        "speech-lab", plan=builders.a_plan("speech", prices=PRICES), accounts=[(cluster, "speech")]
    )
    builders.own(lab, cluster, "robots", project="Robots")
    builders.own(lab, cluster, "maps", project="Maps")
    nodes = [
        NodeSeen(name=f"{model}-{n}", gpu_model=model, gpus=3, state=(NodeState.UP, NodeState.DOWN)[n])
        for model in ("a100", "h100", "l4")
        for n in range(2)
    ]
    capacity.observe(cluster, nodes, builders.at("2026-03-01 00:07"))
    capacity.observe(cluster, nodes, builders.at("2026-03-31 23:11"))
    dice = random.Random(7)
    jobs, hours = [], []
    for number in range(80):
        started = builders.at(f"2026-03-{number % 9 + 1:02} {number % 24:02}:00")
        length = dice.randint(1_000, 90_000)
        jobs.append(
            builders.a_job(
                job_id=f"j{number}", account=("vision", "robots", "maps", "speech", "nobody")[number % 5],
                user=dice.choice(["ben", "zoe", "mia", ""]), gpu_model=dice.choice(["a100", "h100", "l4"]),
                gpus=dice.randint(1, 3), gpu_share=dice.choice([(1, 1), (1, 7), (3, 7)]),
                started=f"{started:%Y-%m-%d %H:%M}", ended=f"{started + timedelta(seconds=length):%Y-%m-%d %H:%M:%S}",
            )
        )  # fmt: skip
        if number % 4:
            covered = min(length, 3_600)
            hours.append(
                (
                    f"j{number}",
                    f"{started:%Y-%m-%d %H:%M}",
                    dice.choice([0, covered * dice.random()]),
                    covered,
                )
            )
    builders.ingest(cluster, *jobs, as_of="2026-04-20")
    for job, hour, busy, covered in hours:
        worked(job, hour, f"{busy:.3f}", covered=covered)
    return builders.a_person("ann@vision.example", lab)


@pytest.mark.usefixtures("ann")
def test_each_day_of_the_overview_adds_up() -> None:
    html = page(builders.an_operator(), "/t/vision-lab/?period=2026-03-01")
    tables = re.findall(r'<table class="table table-sm ct-numbers.*?</table>', html, re.DOTALL)
    assert len(tables) == 2  # GPU-hours and money
    for table in tables:
        days = [
            [number(words(cell)) for cell in re.findall(r"<td>(.*?)</td>", row)]
            for row in re.findall(r"<tr><th scope=\"row.*?</tr>", table)
        ]
        assert sum(1 for *_, total in days if total) >= 9
        for *projects, total in days:
            assert len(projects) == 3
            assert sum(projects) == total


def number(text: str) -> Fraction:
    """Of an amount or hours; a dash is nothing, and so is less than is shown."""
    digits = re.sub(r"[^\d.]", "", text)
    return Fraction(digits) if digits and "<" not in text else Fraction(0)


def rows(html: str, title: str, first: str) -> list[dict[str, str]]:
    """Of the table below a title: cells by the name of their column. Those of `first` begin with the row's name."""
    table = html.partition(f'id="{title}"')[2].partition("</section>")[0]
    named = []
    for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL):
        cells = re.findall(r'<td data-label="([^"]+)"[^>]*>(.*?)</td>', row, re.DOTALL)
        if cells:
            named.append(
                {name: re.split(r"<br>", cell)[0] if name != first else cell for name, cell in cells}
            )
    return [{name: words(cell) for name, cell in row.items()} for row in named]


def check_report(html: str, label: str) -> None:
    *groups, total = rows(html, "report-title", label)
    assert len(groups) > 1
    for row in (*groups, total):
        allocated, *parts = (number(row[name]) for name in HOURS)
        assert sum(parts) == allocated, row
        assert number(row["Cost of waste"]) <= number(row["Cost"]), row
    for column in (*HOURS, "Cost of waste", "Cost"):
        assert sum(number(row[column]) for row in groups) == number(total[column]), column
    tiles = re.findall(r"(Allocated|Effective|Wasted|Unknown) GPU-hours ([\d,.]+) \$([\d,.]+)", words(html))
    hours, money = [number(one[1]) for one in tiles], [number(one[2]) for one in tiles]
    assert hours == [number(total[name]) for name in HOURS]
    assert hours[0] == sum(hours[1:])
    assert money[0] == sum(money[1:]) == number(total["Cost"])
    assert money[2] == number(total["Cost of waste"])


def parts(html: str, column: str) -> dict[str, Fraction]:
    return {row["Part"]: number(row[column]) for row in rows(html, "parts-title", "Part")}


def check_parts(html: str) -> None:
    for column in ("GPU-hours", "Money"):
        use = parts(html, column)
        inner = ("Effective", "Zero utilization", "Low utilization", "Unknown")
        assert use["Allocated"] == sum(use[name] for name in inner) > 0, column
        if "Capacity" in use:
            outer = ("Down or drained", "Idle, no demand", "Idle while jobs waited", "Allocated")
            assert use["Capacity"] == sum(use[name] for name in outer), column


@pytest.mark.parametrize("is_large", [False, True])
def test_ann_adds_up_what_her_gpus_did_and_it_is_the_total(
    ann: User, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    for first, through in RANGES:
        for by, label in (
            (By.PROJECT, "Project"), (By.NAMESPACE, "Account"), (By.USER, "User"), (By.MODEL, "GPU model"),
            (By.POD, "Job"),
        ):  # fmt: skip
            path = f"{ANNS}?from={first}&through={through}&by={by}"
            html = page(ann, path)
            if is_large and by is By.PROJECT:
                outbox.drain()
                html = page(ann, path)
            check_report(html, label)
            check_parts(html)


@pytest.mark.usefixtures("ann")
def test_op_adds_up_where_the_capacity_of_a_cluster_went() -> None:
    op = builders.an_operator()
    for first, through in RANGES:
        for by, label in (
            (By.TENANT, "Tenant"),
            (By.PROJECT, "Project"),
            (By.USER, "User"),
            (By.MODEL, "GPU model"),
        ):
            html = page(op, f"{OPS}?from={first}&through={through}&by={by}")
            check_report(html, label)
            check_parts(html)
            *models, total = rows(html, "nodes-title", "GPU model")
            columns = ("Allocated", "Idle", "Drained", "Down")
            for row in (*models, total):
                assert number(row["Capacity"]) == sum(number(row[name]) for name in columns), row
            for column in (*columns, "Capacity"):
                assert sum(number(row[column]) for row in models) == number(total[column]), column
            assert number(total["Capacity"]) == parts(html, "GPU-hours")["Capacity"]
            assert number(total["Allocated"]) == parts(html, "GPU-hours")["Allocated"]
