"""Op has a dashboard made for a cluster of his own label names and matcher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from clusters.models import Cluster, ClusterKind, Connection
from portal.ops.cli import BadInputError
from tests.scenarios.configuring import run_json

pytestmark = pytest.mark.django_db


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_each_expression_has_the_clusters_own_matcher_and_names() -> None:
    kube = Cluster.objects.create(name="kube", kind=ClusterKind.PROMETHEUS)
    Connection.objects.create(
        cluster=kube,
        base_url="http://127.0.0.1:9090",
        options={
            "matcher": 'cluster="hall-2"',
            "labels": {"namespace": "exported_namespace"},
            "utilisation": {"metric": "DCGM_FI_DEV_GPU_UTIL"},
        },
    )
    queries = expressions(run_json("grafana_dashboard", "--cluster", "kube"))
    assert all('cluster="hall-2"' in expression for expression in queries)
    namespace_queries = [expression for expression in queries if "$namespace" in expression]
    assert namespace_queries
    assert all('exported_namespace=~"$namespace"' in expression for expression in namespace_queries)
    assert not any("DCGM_FI_PROF" in expression for expression in queries)


def test_without_a_cluster_it_is_the_one_of_the_shelf(capsys: pytest.CaptureFixture[str]) -> None:
    for which in ("cluster", "billing"):
        call_command("grafana_dashboard", which)
        printed = capsys.readouterr().out
        path = Path(__file__).parents[2] / "deploy" / "grafana" / f"clustertab-{which}.json"
        assert printed == path.read_text()
        assert json.loads(printed)["uid"] == f"clustertab-{which}"


def test_a_cluster_without_a_connection_yet_has_the_plain_one() -> None:
    Cluster.objects.create(name="kube", kind=ClusterKind.PROMETHEUS)
    assert run_json("grafana_dashboard", "--cluster", "kube") == run_json("grafana_dashboard", "cluster")


def test_a_cluster_that_has_no_prometheus_is_refused() -> None:
    Cluster.objects.create(name="slurm", kind=ClusterKind.SLURM)
    with pytest.raises(
        BadInputError, match="slurm is not read from a Prometheus: name a cluster that is, or none"
    ):
        call_command("grafana_dashboard", "--cluster", "slurm")
    with pytest.raises(BadInputError, match="There is no cluster 'kub'; known: slurm"):
        call_command("grafana_dashboard", "--cluster", "kub")
