"""What capacity costs to run, by GPU model and day, and the margin that is left."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from billing.models import OperatingCost
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import Cluster
from portal.ops.cli import BadInputError, RefusedError
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.configuring_terms import apply, refused
from tests.scenarios.real import run

pytestmark = pytest.mark.django_db

APRIL = ("--from", "2026-04-01", "--to", "2026-05-01")

COSTS = """cluster,gpu_model,currency,per_gpu_hour,from
,a100-80gb,USD,1.00,2026-01-01
,a100-80gb,USD,0.80,2026-04-16
,h100-80gb,USD,2.00,2026-01-01
gpu1,h100-80gb,USD,1.50,2026-01-01
,,EUR,0.90,2026-01-01
"""


def a_month(models: tuple[str, ...] = ("a100-80gb", "h100-80gb")) -> Cluster:
    """Team costs of worked example D: A100-80GB at 2.21, H100-80GB at 3.75; one GPU of each, held all of April."""
    cluster = a_cluster()
    prices = [
        ("gpu-hour", {"gpu_model": ["a100-80gb"]}, "2.21", LONG_AGO),
        ("gpu-hour", {"gpu_model": ["h100-80gb"]}, "3.75", LONG_AGO),
    ]
    a_tenant(plan=a_plan(prices=prices), accounts=[(cluster, "vision")])
    jobs = [a_job(gpu_model=model, started="2026-04-01", ended="2026-05-01") for model in models]
    ingest(cluster, *jobs, as_of="2026-05-01")
    nodes = [NodeSeen(name=model, gpu_model=model, gpus=1, state=NodeState.UP) for model in models]
    capacity.observe(cluster, nodes, at("2026-04-01"))
    return cluster


def imported(tmp_path: Path, text: str = COSTS) -> dict[str, int]:
    file = tmp_path / "costs.csv"
    file.write_text(text)
    return run("import_costs", str(file))


def test_worked_example_d_the_margin_is_by_what_each_model_costs_on_each_day(tmp_path: Path) -> None:
    a_month()
    assert imported(tmp_path) == {"new": 5, "changed": 0, "same": 0}
    # 720 h × (2.21 + 3.75); 360 h × 1.00 + 360 h × 0.80 + 720 h × 1.50, which gpu1 has of its own
    assert run("report_cost", "gpu1", *APRIL, "--margin")["margin"] == {
        "currency": "USD",
        "revenue": "4291.2",
        "operating_cost": "1728",
        "margin": "2563.2",
    }


def test_worked_example_a_one_cost_for_every_model(tmp_path: Path) -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(gpus=4, started="2026-04-01", ended="2026-05-01"), as_of="2026-05-01")
    nodes = [NodeSeen(name="n1", gpu_model="rtx-4090", gpus=4, state=NodeState.UP)]
    capacity.observe(cluster, nodes, at("2026-04-01"))
    imported(tmp_path, "gpu_model,currency,per_gpu_hour,from\n,USD,1.00,2026-01-01\n")
    assert run("report_cost", "gpu1", *APRIL, "--margin")["margin"]["margin"] == "2880"


def test_a_model_without_a_cost_costs_nothing_by_accident(tmp_path: Path) -> None:
    a_month()
    imported(tmp_path, "gpu_model,currency,per_gpu_hour,from\na100-80gb,USD,1.00,2026-04-16\n")
    with pytest.raises(RefusedError, match="No operating cost in USD of a100-80gb holds on 2026-04-01"):
        run("report_cost", "gpu1", *APRIL, "--margin")


def test_costs_are_taken_in_again_and_corrected(tmp_path: Path) -> None:
    a_cluster()
    imported(tmp_path)
    assert imported(tmp_path) == {"new": 0, "changed": 0, "same": 5}
    assert imported(tmp_path, COSTS.replace("0.80", "0.85")) == {"new": 0, "changed": 1, "same": 4}


def test_a_file_that_is_wrong_is_refused_whole_and_says_each_row(tmp_path: Path) -> None:
    a_cluster()
    with pytest.raises(BadInputError) as refusal:
        imported(
            tmp_path, COSTS + "gpu1,l4,USD,cheap,2026-01-01\ngpu1,l4,USD,1,soon\n,l4,USD,1e-9,2026-01-01\n"
        )
    assert refusal.value.sentences == (
        "Row 7: 'cheap' is no amount; write it like 1.00.",
        "Row 8: 'soon' is no day; write it like 2026-01-31.",
        "Row 9: '1e-9' is no amount; write it like 1.00.",
    )
    with pytest.raises(BadInputError) as refusal:
        imported(
            tmp_path,
            COSTS
            + "gpu9,l4,USD,1,2026-01-01\n,l4,TOK,1,2026-01-01\n,l4,USD,-1,2026-01-01\n,l4,USD,1,0001-01-01\n"
            + ",a100-80gb,USD,1,2026-01-01\n",
        )
    assert [sentence.split(" from ", 1)[1] for sentence in refusal.value.sentences[:4]] == [
        "2026-01-01 names the cluster 'gpu9', which there is not.",
        "2026-01-01 is in 'TOK'; write a currency of ISO 4217, such as USD or EUR.",
        "2026-01-01 is -1; it is from 0 and below 1,000,000,000,000.",
        "0001-01-01 begins too early: there are days from 1970-01-01 on.",
    ]
    assert refusal.value.sentences[4].startswith("The same cluster, model, currency and day")
    assert not OperatingCost.objects.exists()
    for text in ("gpu_model,price\n", "", "gpu_model,currency,per_gpu_hour,from\na100\n"):
        with pytest.raises(BadInputError):
            imported(tmp_path, text)


def test_op_says_costs_in_her_file() -> None:
    text = """
[[cluster]]
name = "gpu1"

[[operating_cost]]
gpu_model = "a100-80gb"
currency = "USD"
per_gpu_hour = "1.00"
from = 2026-01-01

[[operating_cost]]
cluster = "gpu1"
currency = "USD"
per_gpu_hour = "0.70"
from = 2026-06-01
"""
    changes = apply(text)
    assert "operating cost of a100-80gb in every cluster from 2026-01-01: new (per GPU-hour 1 USD)" in changes
    assert "operating cost of every model in gpu1 from 2026-06-01: new (per GPU-hour 0.7 USD)" in changes
    assert not [line for line in apply(text) if "new" in line]
    assert OperatingCost.objects.get(cluster=None).valid_from == date(2026, 1, 1)
    (sentence,) = refused(text.replace('"0.70"', '"-1"'))
    assert sentence.startswith(
        "operating_cost: The operating cost of every model from 2026-06-01 is -1; it is"
    )


def test_either_one_cost_or_the_ones_that_were_entered() -> None:
    a_month()
    with pytest.raises(BadInputError, match="Give --operating-cost, or --margin"):
        run("report_cost", "gpu1", *APRIL, "--margin", "--operating-cost", "1.00")
