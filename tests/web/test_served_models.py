"""Op sees what each model earned by tokens, beside the GPU-hours of the jobs that served it and what those cost."""

from __future__ import annotations

from datetime import date

import pytest

from billing.models import OperatingCost
from clusters.models import Cluster, ClusterKind, Connection
from tests import builders, sums
from tests.contracts.test_prometheus_tokens import OPTIONS
from tests.web.house import page, signed_in
from tests.web.test_reports import cells

pytestmark = pytest.mark.django_db

MODELS = "/operator/reports/models/"
LARGE = {"model": "large", "direction": "input"}
WRITTEN = {"model": "large", "direction": "output"}


def a_kube(served_by: dict[str, object]) -> Cluster:
    """Its pods serve models; which of them serves which, the connection says."""
    kube = builders.a_cluster("kube", kind=ClusterKind.PROMETHEUS)
    tokens = {**OPTIONS["tokens"], "served_by": served_by}
    Connection.objects.create(cluster=kube, base_url="http://127.0.0.1:1", options={"tokens": tokens})
    ran = {"account": "serving", "gpu_model": "h100", "gpus": 2}
    builders.ingest(
        kube,
        builders.a_job(job_id="1", name="llama", started="2026-03-02 23:00", ended="2026-03-03 01:00", **ran),
        builders.a_job(job_id="2", name="bge", started="2026-02-28 23:00", ended="2026-03-01 00:30", **ran),
        builders.a_job(job_id="3", name="bge", started="2026-03-05 10:00", ended="2026-03-05 11:00", **ran),
    )
    return kube


def test_revenue_cost_and_margin_of_each_model() -> None:
    op = builders.an_operator()
    assert "No tokens in this month" in page(op, MODELS)
    gateway = sums.a_gateway()
    sums.a_user_of_tokens(gateway)
    a_kube({"large": "kube/serving/llama", "small": ["kube/serving", "kube/elsewhere"]})
    sums.push(
        gateway,
        sums.a_sum("a", 12_500_000),
        sums.a_sum("b", 1_000_000, dimensions=WRITTEN),
        sums.a_sum("c", 500_000, dimensions={**LARGE, "model": "unplaced"}),
        sums.a_sum("d", 9, "2026-02-02T10"),
    )
    text = page(op, f"{MODELS}?month=2026-03")
    assert cells(text, "large") == [
        "large",
        "12,500,000",
        "0",
        "1,000,000",
        "4.00",
        "$9.90",
        "unknown",
        "unknown",
    ]

    cost = {"currency": "USD", "gpu_model": "", "cluster": None}
    OperatingCost.objects.create(amount="1.50", valid_from=date(2026, 1, 1), **cost)
    OperatingCost.objects.create(
        amount="2.00", valid_from=date(2026, 3, 3), **cost
    )  # for one of its two hours
    text = page(op, f"{MODELS}?month=2026-03")
    assert cells(text, "large")[4:] == ["4.00", "$9.90", "$7.00", "$2.90"]
    assert cells(text, "small") == ["small", "0", "0", "0", "3.00", "–", "$5.50", "-$5.50"]
    assert cells(text, "unplaced")[1:] == ["500,000", "0", "0", "unknown", "$0.30", "unknown", "unknown"]
    assert MODELS in page(op, "/operator/reports/")
    for wrong in ("2026-13", "x", "1999-01"):
        assert signed_in(op).get(f"{MODELS}?month={wrong}").status_code == 404
