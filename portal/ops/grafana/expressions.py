"""What a Kubernetes cluster's GPUs do now, in PromQL: the connector's series, matcher and label names.

Each expression is an instant vector, so that it draws a graph and answers a table alike. Pods are joined by their uid,
and whatever joins is made one series by `max by`: replicas and rollouts of the exporter change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from clusters.connectors.prometheus.catalog import Metric
from clusters.connectors.prometheus.nodes import PRODUCT
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.queries import (
    HOLDING,
    NODE_ALLOCATABLE,
    NODE_LABELS,
    PHASE,
    REQUESTS,
    Queries,
)

# Gauges of the schedulers' own; Volcano counts thousandths.
KUEUE = "kueue_cluster_queue_resource_usage"
VOLCANO = "volcano_queue_allocated_scalar_resources"
KAI = "kai_queue_allocated_gpus"
GPU = 'resource="nvidia.com/gpu"'

NAMESPACES = '"$namespace"'
MODELS = f'{PRODUCT}=~"$model"'
DEVICE = "namespace,pod,Hostname,hostname,UUID,uuid,gpu,GPU_I_ID"
"""Labels that tell a device, or a slice of one, and who holds it, in all releases of dcgm-exporter."""
SPELLINGS = {"namespace": ("pod_namespace", "exported_namespace"), "pod": ("pod_name", "exported_pod")}
"""How else dcgm-exporter and what scrapes it call who holds a device."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """For one cluster's options. What names a namespace or model is narrowed by the dashboard's variables."""

    options: PrometheusOptions

    @property
    def _queries(self) -> Queries:
        return Queries(self.options)

    def allocated(self, *, narrowed: bool = True) -> str:
        """Devices by pod, container and resource that scheduled pods hold and have not given back; a slice is one."""
        requests = f"max by (namespace,pod,uid,node,container,resource) ({self._requests(narrowed=narrowed)})"
        phase = self._queries.selector(PHASE, HOLDING)
        return f"{requests} * on (uid) group_left () max by (uid) ({phase} == 1)"

    def allocatable(self) -> str:
        """Devices by node and resource that pods may ask for."""
        selector = self._queries.selector(NODE_ALLOCATABLE, self._resources)
        return f"max by (node,resource) ({self._labeled(selector, 'node')})"

    def product(self) -> str:
        """The product that each node has, of the chosen models. While a node is cut into other slices it has two for a
        moment, which could not be joined."""
        labels = self._labeled(self._queries.selector(NODE_LABELS, MODELS), "node")
        return f"topk by (node) (1, max by (node,{PRODUCT}) ({labels}))"

    def readings(self) -> str:
        """Part of the time, 0 to 1, that each device works."""
        sorted_metrics = sorted(self.options.utilisation.metrics, key=lambda metric: metric.divisor)
        parts = [
            self._readings(list(metrics))
            for _, metrics in groupby(sorted_metrics, key=lambda metric: metric.divisor)
        ]
        return " or on (namespace,pod) ".join(parts)

    @property
    def parts(self) -> list[str]:
        """Each part of the dashboard's expressions that follows from options."""
        selector = self._queries.selector
        return [
            *(
                self.allocated(),
                self.allocated(narrowed=False),
                self.allocatable(),
                self.product(),
                self.readings(),
            ),
            *(self._requests(narrowed=False), selector(NODE_LABELS, f'{PRODUCT}!=""')),
            *(selector(KUEUE, GPU), selector(VOLCANO, GPU), selector(KAI)),
        ]

    @property
    def _resources(self) -> str:
        return f'resource=~"{self.options.resources}"'

    def _requests(self, *, narrowed: bool) -> str:
        placed = f'{self.options.labels.node or "node"}!=""'
        arguments = (REQUESTS, self._resources, placed)
        return self._labeled(
            self._narrowed(*arguments) if narrowed else self._queries.selector(*arguments),
            "namespace",
            "pod",
            "container",
            "node",
        )

    def _narrowed(self, metric: str, *matchers: str) -> str:
        """Series of the chosen namespaces. Where the label's name is not told, each series says which it has."""
        label = self.options.labels.namespace
        if label:
            return self._queries.selector(metric, *matchers, f"{label}=~{NAMESPACES}")
        renamed = self._queries.selector(metric, *matchers, f"exported_namespace=~{NAMESPACES}")
        plain = self._queries.selector(metric, *matchers, 'exported_namespace=""', f"namespace=~{NAMESPACES}")
        return f"({renamed} or {plain})"

    def _labeled(self, expression: str, *whats: str) -> str:
        """With these labels under their own names, however they are spelled there."""
        for what in whats:
            label: str = getattr(self.options.labels, what) or f"exported_{what}"
            if label != what:
                expression = renamed(expression, label, what)
        return expression

    def _readings(self, metrics: list[Metric]) -> str:
        """Samples of metrics that count alike, as 0 to 1, under the names of the pods that hold the devices."""
        limit, divisor = metrics[0].limit, metrics[0].divisor
        names = "|".join(metric.name for metric in metrics)
        own = self.options.utilisation.matcher
        matchers = (f'__name__=~"{names}"', self.options.matcher if own is None else own)
        expression = f"{{{','.join(filter(None, matchers))}}} <= {limit}"
        for what, spellings in SPELLINGS.items():
            for spelling in spellings:
                expression = renamed(expression, spelling, what)
        device = f"max by ({DEVICE}) ({expression})"
        return device if divisor == 1 else f"{device} / {divisor}"


def renamed(expression: str, spelling: str, name: str) -> str:
    """Where a series says something under that spelling, the name has it too."""
    return f'label_replace({expression}, "{name}", "$1", "{spelling}", "(.+)")'
