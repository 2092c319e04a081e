"""Worked example A: four GPUs at two dollars an hour, fully booked for a month of thirty days."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from tests import builders
from tests.scenarios.real import run

pytestmark = pytest.mark.django_db

HEADER = "JobIDRaw|User|Account|Submit|Start|End|ElapsedRaw|State|AllocTRES|JobName"


def fully_booked(path: Path) -> Path:
    """Thirty jobs of June 2026, each holding all four GPUs from midnight to midnight."""
    rows = [HEADER]
    for number in range(30):
        start = datetime(2026, 6, 1) + timedelta(days=number)
        end = start + timedelta(days=1)
        rows.append(
            f"{number + 1}|ben|render|{start.isoformat()}|{start.isoformat()}|{end.isoformat()}|86400|COMPLETED"
            f"|cpu=32,mem=128G,gres/gpu=4,gres/gpu:rtx4090=4|frames"
        )
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_single_day_is_96_gpu_hours_and_192_dollars(tmp_path: Path) -> None:
    cluster = builders.a_cluster("farm")
    plan = builders.a_plan(prices=[("gpu-hour", {"gpu_model": ["rtx4090"]}, "2.00", date(2026, 1, 1))])
    builders.a_tenant("render-house", plan=plan, accounts=[(cluster, "render")])
    one_day = fully_booked(tmp_path / "june.sacct").read_text().splitlines()[:2]
    (tmp_path / "day.sacct").write_text("\n".join(one_day) + "\n")

    run("import_usage", "farm", tmp_path / "day.sacct", "--as-of", "2026-07-01")
    run("close_period", "2026-06")

    (invoice,) = run("show_invoices")["invoices"]
    assert (invoice["lines"][0]["quantity"], invoice["total"]) == ("96", "192.00")


def test_four_gpus_for_thirty_days_are_5760_dollars_and_192_a_day(tmp_path: Path) -> None:
    cluster = builders.a_cluster("farm")
    plan = builders.a_plan(prices=[("gpu-hour", {"gpu_model": ["rtx4090"]}, "2.00", date(2026, 1, 1))])
    builders.a_tenant("render-house", plan=plan, accounts=[(cluster, "render")])

    run("import_usage", "farm", fully_booked(tmp_path / "june.sacct"))
    run("close_period", "2026-06")

    (invoice,) = run("show_invoices", "--tenant", "render-house")["invoices"]
    (line,) = invoice["lines"]
    assert invoice["total"] == "5760.00"
    assert (line["quantity"], line["unit"], line["unit_price"], line["amount"]) == (
        "2880",
        "GPU-hour",
        "2.00",
        "5760.00",
    )
    explained = run("explain_invoice", invoice["number"])["lines"][0]
    assert len(explained["jobs"]) == 30
    assert {job["resource_seconds"] for job in explained["jobs"]} == {str(96 * 3600)}  # 96 GPU-hours a day
    assert explained["formula"] == "10368000 s ÷ 3600 × 2.00 USD, rounded once = $5,760.00"
