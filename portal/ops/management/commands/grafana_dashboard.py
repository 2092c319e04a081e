"""`grafana_dashboard [cluster|billing]`: a dashboard for Grafana, to be imported there."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from clusters.connectors.base import ConnectorError
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.models import ClusterKind, Connection
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.grafana.dashboards import DASHBOARDS, Which
from portal.ops.lookups import the_cluster


class Command(OperatorCommand):
    help = "Print a dashboard for Grafana, to be imported there: of a Kubernetes cluster, or of ClusterTab itself."
    refusals = (ConnectorError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "which", nargs="?", choices=[which.value for which in Which], default=Which.CLUSTER.value
        )
        parser.add_argument(
            "--cluster", metavar="CLUSTER", help="whose matcher, label names and metric of use stand in it"
        )

    def answer(self, *, which: str, cluster: str | None, **_: Any) -> Answer:
        dashboard = DASHBOARDS[Which(which)](_options(cluster))
        return Answer(dashboard, text_of(dashboard))


def text_of(dashboard: dict[str, Any]) -> str:
    return json.dumps(dashboard, indent=2, ensure_ascii=False)


def _options(name: str | None) -> PrometheusOptions:
    if name is None:
        return PrometheusOptions()
    cluster = the_cluster(name)
    if cluster.kind != ClusterKind.PROMETHEUS:
        raise BadInputError(f"{name} is not read from a Prometheus: name a cluster that is, or none.")
    connection = Connection.objects.filter(cluster=cluster).first()
    return options_from(connection.options) if connection else PrometheusOptions()
