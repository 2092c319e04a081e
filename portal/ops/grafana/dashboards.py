"""The two dashboards: what a Kubernetes cluster's GPUs do, and what ClusterTab itself tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from clusters.connectors.prometheus.nodes import PRODUCT
from clusters.connectors.prometheus.options import PrometheusOptions
from portal.ops.grafana.expressions import Expressions
from portal.ops.grafana.panels import Json, Panel, Query, dashboard, variable

TOP = 20
HOUR = 3600


class Which(StrEnum):
    CLUSTER = "cluster"
    BILLING = "billing"


def cluster(options: PrometheusOptions) -> Json:
    """Of the Prometheus that a cluster is read from."""
    ask = Expressions(options)
    return dashboard(
        uid="clustertab-cluster",
        title="ClusterTab: GPUs of a cluster",
        says="Who holds which GPUs now, what stands idle, and how busy they are. "
        "Devices are counted: a MIG slice is one.",
        variables=[
            variable(
                "namespace", "Namespace", f"query_result({ask.namespaces})", regex='/namespace="([^"]+)"/'
            ),
            variable("model", "Model", f"label_values({ask.models}, {PRODUCT})"),
        ],
        panels=[*_now(ask), *_over_time(ask), *_queues(ask), _pods(ask)],
    )


def _now(ask: Expressions) -> list[Panel]:
    allocation, there = f"sum({ask.allocated(narrowed=False)})", f"sum({ask.allocatable()})"
    return [
        _stat("Devices", "All that pods may ask for.", there),
        _stat(
            "Allocated", "Held by pods that were scheduled and have not ended.", f"{allocation} or vector(0)"
        ),
        _stat("Idle", "Held by nobody.", f"sum({ask.idle()})"),
        _stat("Busy", _BUSY, f"avg({ask.busy()})", unit="percentunit"),
    ]


_BUSY = (
    "Part of the time in which devices work, averaged over those that pods hold; idle ones do not dilute it."
)


def _over_time(ask: Expressions) -> list[Panel]:
    model = f"{{{{{PRODUCT}}}}}"
    return [
        _graph(
            "Allocated by namespace", "Devices.", f"sum by (namespace) ({ask.allocated()})", "{{namespace}}"
        ),
        _graph(
            "Allocated by model",
            "Devices, by the product that their node tells; a sliced GPU's product names its profile.",
            f"sum by ({PRODUCT}) ({ask.with_model(ask.allocated())})",
            model,
        ),
        _graph(
            "Busy by namespace",
            _BUSY,
            f"avg by (namespace) ({ask.busy()})",
            "{{namespace}}",
            unit="percentunit",
        ),
        _graph(
            "Idle by model",
            "Devices that no pod of any namespace holds.",
            f"sum by ({PRODUCT}) ({ask.with_model(ask.idle())})",
            model,
        ),
    ]


def _queues(ask: Expressions) -> list[Panel]:
    return [
        Panel(
            title="Devices by queue",
            says="As the schedulers' own gauges tell; what is billed comes from pods.",
            kind="timeseries",
            queries=[
                Query(ask.kueue(), "Kueue {{cluster_queue}} {{flavor}}"),
                Query(ask.volcano(), "Volcano {{queue_name}}"),
                Query(ask.kai(), "KAI {{queue_name}}"),
            ],
        ),
    ]


def _pods(ask: Expressions) -> Panel:
    return Panel(
        title="Pods that hold devices",
        says="Now, of the chosen namespaces and models.",
        kind="table",
        queries=[Query(ask.with_model(ask.allocated()))],
        columns={
            "namespace": "Namespace",
            "pod": "Pod",
            "container": "Container",
            "node": "Node",
            PRODUCT: "Model",
            "resource": "Resource",
            "Value": "Devices",
        },
    )


def billing() -> Json:
    """Of the Prometheus that scrapes our own /metrics."""
    return dashboard(
        uid="clustertab-billing",
        title="ClusterTab: spending and operation",
        says="What tenants and jobs cost, how far clusters are read, and what waits for somebody.",
        variables=[],
        panels=[*_spending(), *_reading(), *_waiting()],
    )


def _spending() -> list[Panel]:
    job = {"job_name": "Job", "team": "Team", "gpu_type": "GPU", "namespace": "Namespace"}
    labels = ",".join(job)
    cost = f"max by ({labels}) (training_job_cost_usd)"
    return [
        _graph(
            "Spend of tenants in their present billing period",
            "Before tax, in each tenant's own currency; it begins anew with each period.",
            "max by (tenant,currency) (clustertab_tenant_spend)",
            "{{tenant}} {{currency}}",
        ),
        _graph(
            "Cost of running and lately ended jobs by team",
            "Of jobs that run, or ended within a day, since their start; US dollars.",
            f"sum by (team) ({cost})",
            "{{team}}",
            unit="currencyUSD",
        ),
        Panel(
            title="Most expensive jobs",
            says="That run, or ended within a day: what they have cost since their start, in US dollars.",
            kind="table",
            queries=[Query(f"topk({TOP}, {cost})")],
            unit="currencyUSD",
            width=24,
            columns={**job, "Value": "Cost"},
        ),
    ]


def _reading() -> list[Panel]:
    return [
        _graph(
            "How far clusters are behind",
            "Seconds from the moment up to which a cluster has been read.",
            "max by (cluster) (clustertab_cluster_watermark_lag_seconds)",
            "{{cluster}}",
            unit="s",
        ),
        _graph(
            "Syncs that failed in a row",
            "0 where the last one ended well.",
            "max by (cluster) (clustertab_cluster_failed_passes)",
            "{{cluster}}",
        ),
        _graph(
            "Rows in quarantine",
            "Set aside, and settled by nobody.",
            "sum by (cluster,code) (max by (cluster,code) (clustertab_quarantined_rows))",
            "{{cluster}} {{code}}",
        ),
        Panel(
            title="GPU-hours that cannot be billed",
            says="Unpriced: a tenant's close is refused. Unassigned: begun within 31 days in accounts of nobody.",
            kind="timeseries",
            queries=[
                Query(f"max by (tenant) (clustertab_unpriced_gpu_seconds) / {HOUR}", "unpriced, {{tenant}}"),
                Query(
                    f"max by (cluster) (clustertab_unassigned_gpu_seconds) / {HOUR}",
                    "unassigned, {{cluster}}",
                ),
            ],
            unit="h",
        ),
    ]


def _waiting() -> list[Panel]:
    return [
        _graph(
            "Work that waits in the outbox",
            "Effects of committed changes, by task; nothing is lost, it is only late.",
            "max by (task) (clustertab_outbox_waiting)",
            "{{task}}",
        ),
        _graph(
            "Age of the oldest of it",
            "Seconds.",
            "max by (task) (clustertab_outbox_oldest_seconds)",
            "{{task}}",
            unit="s",
        ),
        _graph(
            "Messages in the broker", "By queue.", "max by (queue) (clustertab_queue_messages)", "{{queue}}"
        ),
        _stat("Broker", "1 while it answers.", "min(clustertab_broker_up)"),
        _stat(
            "Failing effects",
            "Tried, failed, tried again.",
            "sum(clustertab_outbox_failed) or vector(0)",
            red_from=1,
        ),
    ]


def _stat(
    title: str, says: str, expression: str, *, unit: str = "short", red_from: int | None = None
) -> Panel:
    return Panel(
        title=title,
        says=says,
        kind="stat",
        queries=[Query(expression)],
        unit=unit,
        width=6,
        height=4,
        red_from=red_from,
    )


def _graph(title: str, says: str, expression: str, legend: str, *, unit: str = "short") -> Panel:
    return Panel(title=title, says=says, kind="timeseries", queries=[Query(expression, legend)], unit=unit)


DASHBOARDS: Mapping[Which, Callable[[PrometheusOptions], Json]] = {
    Which.CLUSTER: cluster,
    Which.BILLING: lambda _: billing(),
}
