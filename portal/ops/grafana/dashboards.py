"""The two dashboards: what a Kubernetes cluster's GPUs do, and what ClusterTab itself measures.

They are the files in `deploy/grafana`, as Grafana imports them. Of a cluster with options of its own, the parts of
expressions that follow from them are replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from clusters.connectors.prometheus.options import PrometheusOptions
from portal.env import ROOT
from portal.ops.grafana.expressions import Expressions

Json = dict[str, Any]
FOLDER = ROOT / "deploy" / "grafana"


class Which(StrEnum):
    CLUSTER = "cluster"
    BILLING = "billing"


def cluster(options: PrometheusOptions) -> Json:
    """Of the Prometheus that a cluster is read from."""
    parts = dict(zip(Expressions(PrometheusOptions()).parts, Expressions(options).parts, strict=True))
    longest_first = sorted(parts, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))

    def replaced(text: str) -> str:
        return pattern.sub(lambda match: parts[match[0]], text)

    dashboard = _read(Which.CLUSTER)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            variable["definition"] = variable["query"]["query"] = replaced(variable["definition"])
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            target["expr"] = replaced(target["expr"])
    return dashboard


def billing() -> Json:
    """Of the Prometheus that scrapes our own /metrics."""
    return _read(Which.BILLING)


def _read(which: Which) -> Json:
    dashboard: Json = json.loads((FOLDER / f"clustertab-{which}.json").read_text())
    return dashboard


DASHBOARDS: Mapping[Which, Callable[[PrometheusOptions], Json]] = {
    Which.CLUSTER: cluster,
    Which.BILLING: lambda _: billing(),
}
