"""All PromQL of the connector. Windows are given in seconds and written one millisecond shorter: a range is
closed on the left before Prometheus 3 and open after it, and so both answer the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from clusters.connectors.prometheus.options import PrometheusOptions

REQUESTS = "kube_pod_container_resource_requests"
INIT_REQUESTS = "kube_pod_init_container_resource_requests"
CLAIM_INFO = "kube_pod_resourceclaim_info"
INIT_INFO = "kube_pod_init_container_info"
CPU_MEMORY = ("cpu", "memory")
PHASE = "kube_pod_status_phase"
SCHEDULED = "kube_pod_status_scheduled_time"
STARTED = "kube_pod_start_time"
COMPLETED = "kube_pod_completion_time"
POD_INFO = "kube_pod_info"
QOS_CLASS = "kube_pod_status_qos_class"
CREATED = "kube_pod_created"
POD_OWNER = "kube_pod_owner"
REPLICASET_OWNER = "kube_replicaset_owner"
JOB_OWNER = "kube_job_owner"
STATUS_REASON = "kube_pod_status_reason"
TERMINATED_REASON = "kube_pod_container_status_terminated_reason"
LAST_TERMINATED_REASON = "kube_pod_container_status_last_terminated_reason"
WORKLOAD_CONDITION = "kube_customresource_kueue_workload_condition_time"
POD_LABELS = "kube_pod_labels"
POD_ANNOTATIONS = "kube_pod_annotations"
NAMESPACE_LABELS = "kube_namespace_labels"
NODE_INFO = "kube_node_info"
NODE_LABELS = "kube_node_labels"
NODE_CAPACITY = "kube_node_status_capacity"
NODE_ALLOCATABLE = "kube_node_status_allocatable"
NODE_CONDITION = "kube_node_status_condition"
NODE_UNSCHEDULABLE = "kube_node_spec_unschedulable"

OVER = 'phase=~"Succeeded|Failed"'
HOLDING = 'phase=~"Pending|Running|Unknown"'
FRACTIONS = ("annotation_gpu_fraction", "annotation_gpu_memory")
OWNED_BY = "owner_kind,owner_name,owner_is_controller"
DEVICES = "annotation_gpu_fraction_num_devices"
NAMED = 10_000  # characters of names in one query, some 270 uids; VictoriaMetrics takes queries of 16 KiB


def span(seconds: int) -> str:
    """`3600` as `3599999ms`."""
    return f"{seconds * 1000 - 1}ms"


@dataclass(frozen=True, slots=True)
class Queries:
    """Expressions with the connection's matcher in each of their selectors; `uids` narrows them to those pods."""

    options: PrometheusOptions
    uids: Sequence[str] = ()

    def of(self, uids: Sequence[str]) -> Queries:
        return Queries(self.options, uids)

    def selector(self, metric: str, *matchers: str) -> str:
        """Series of kube-state-metrics that are not about one pod."""
        return f"{metric}{{{','.join(filter(None, (*matchers, self.options.matcher)))}}}"

    def pod(self, metric: str, *matchers: str) -> str:
        """Series about pods: of all, or of those asked for."""
        return self.selector(metric, *matchers, f'uid=~"{alternatives(self.uids)}"' if self.uids else "")

    @property
    def requests(self) -> str:
        """Series that stand while a scheduled pod exists whose containers ask for devices."""
        return self.requesting(REQUESTS)

    def requesting(self, metric: str) -> str:
        """What containers or init containers of scheduled pods ask for of devices."""
        return self.pod(metric, f'resource=~"{self.options.holding}"', self._placed)

    @property
    def placed(self) -> str:
        """Series that stand while a scheduled pod exists, whatever it asks for."""
        return self.pod(POD_INFO, self._placed)

    def presence(self, holder: str) -> str:
        """Series of pods that hold devices: by request, also of init containers alone, in part by an annotation, or by
        a resource claim.

        `holder`: "", `INIT_REQUESTS`, the annotation's name, or `CLAIM_INFO`.
        """
        return self.placed if holder in {*FRACTIONS, CLAIM_INFO} else self.requesting(holder or REQUESTS)

    def gate(self, holder: str) -> str:
        """What tells those pods from all others."""
        if holder in FRACTIONS:
            return self.pod(POD_ANNOTATIONS, f'{holder}!=""')
        return self.pod(CLAIM_INFO) if holder == CLAIM_INFO else self.requesting(holder or REQUESTS)

    @property
    def _placed(self) -> str:
        return f'{self.options.labels.node or "node"}!=""'

    def spellings(self, *whats: str) -> str:
        return self.options.labels.listed(*whats)

    def requested(self, metric: str, seconds: int) -> str:
        """What each container, or each init container, asks for of devices."""
        by = f"uid,resource,{self.spellings('namespace', 'pod', 'container', 'node')}"
        return most(by, self.requesting(metric), seconds)

    def of_vgpus(self, metric: str, resources: Iterable[str], seconds: int) -> str:
        """What each container, or each init container, asks for of each of its vGPUs."""
        selector = self.pod(metric, f'resource=~"{"|".join(resources)}"', self._placed)
        return most(f"uid,resource,{self.spellings('container')}", selector, seconds)

    def sidecars(self, gate: str, seconds: int) -> str:
        """The init containers that run beside the others for as long as their pod lives."""
        selector = self.pod(INIT_INFO, 'restart_policy="Always"')
        return only(most(f"uid,{self.spellings('container')}", selector, seconds), gate, seconds)

    def cpu_memory(self, metric: str, gate: str, seconds: int) -> str:
        """What each container of each pod asks for of the two."""
        selector = self.pod(metric, f'resource=~"{"|".join(CPU_MEMORY)}"', self._placed)
        return only(most(f"uid,resource,{self.spellings('container')}", selector, seconds), gate, seconds)

    def fractions(self, annotation: str, seconds: int) -> str:
        """Pods that hold a part of a device without asking for one."""
        by = f"uid,{annotation},{DEVICES}"
        return most(by, self.pod(POD_ANNOTATIONS, f'{annotation}!=""'), seconds)

    def claims(self, seconds: int) -> str:
        """The resource claims of pods, by the names that pods give them."""
        return most("uid,claim_name,resourceclaim_name", self.pod(CLAIM_INFO), seconds)

    def places(self, seconds: int) -> str:
        """Where pods are."""
        return most(f"uid,{self.spellings('namespace', 'pod', 'node')}", self.placed, seconds)

    def labels(self, names: Sequence[str], gate: str, seconds: int) -> str:
        """The labels of pods."""
        expression = most(f"uid,{','.join(names)}", self.pod(POD_LABELS), seconds)
        return only(expression, gate, seconds)

    def priority_class(self, gate: str, seconds: int) -> str:
        return only(most("uid,priority_class", self.pod(POD_INFO), seconds), gate, seconds)

    def owner(self, gate: str, seconds: int) -> str:
        """What made each pod."""
        by = f"uid,{self.spellings('namespace')},{OWNED_BY}"
        return only(most(by, self.pod(POD_OWNER), seconds), gate, seconds)

    def owners(self, metric: str, label: str, names: Sequence[str], seconds: int) -> str:
        """What made each of these objects; `label` has their names."""
        selector = self.selector(metric, f'{label}=~"{alternatives(names)}"')
        return most(f"{label},{self.spellings('namespace')},{OWNED_BY}", selector, seconds)

    def qos_class(self, gate: str, seconds: int) -> str:
        return only(f"{most('uid,qos_class', self.pod(QOS_CLASS), seconds)} == 1", gate, seconds)

    def namespaces(self, name: str, seconds: int) -> str:
        by = f"{self.spellings('namespace')},{name}"
        return most(by, self.selector(NAMESPACE_LABELS, f'{name}!=""'), seconds)

    def first(self, metric: str, gate: str, seconds: int) -> str:
        """The earliest value that a pod's series had: an epoch second."""
        expression = f"min by (uid) (min_over_time({self.pod(metric)}[{span(seconds)}]))"
        return only(expression, gate, seconds)

    def completed(self, gate: str, seconds: int) -> str:
        return only(most("uid", self.pod(COMPLETED), seconds), gate, seconds)

    def over(self, gate: str, seconds: int) -> str:
        """Pods that have ended, with their phase."""
        return only(f"{most('uid,phase', self.pod(PHASE, OVER), seconds)} == 1", gate, seconds)

    def reasons(self, metric: str, words: Sequence[str], seconds: int) -> str:
        """Which of these reasons pods or their containers had."""
        selector = self.pod(metric, f'reason=~"{"|".join(words)}"')
        return f"{most('uid,reason', selector, seconds)} == 1"

    def evictions(self, names: Sequence[str], seconds: int) -> str:
        """When Kueue last evicted the workload of each of these objects: an epoch second."""
        selector = self.selector(
            WORKLOAD_CONDITION, 'type="Evicted"', 'status="True"', f'owner_name=~"{alternatives(names)}"'
        )
        return most(f"{self.spellings('namespace')},owner_kind,owner_name,reason", selector, seconds)

    def present(self, series: str, seconds: int) -> str:
        return f"count by (uid) (count_over_time({series}[{span(seconds)}]))"

    def any(self, metric: str, seconds: int) -> str:
        """One number where there is a series of it at all."""
        return f"count(count_over_time({self.selector(metric)}[{span(seconds)}]))"


def most(by: str, selector: str, seconds: int) -> str:
    """The largest value by those labels: replicas and rollouts of the exporter fall into one."""
    return f"max by ({by}) (max_over_time({selector}[{span(seconds)}]))"


def only(expression: str, gate: str, seconds: int) -> str:
    """What `gate` has had a series for, or all without one; the join is made once, at the end of the window."""
    return (
        f"{expression} and on (uid) max by (uid) (max_over_time({gate}[{span(seconds)}]))"
        if gate
        else expression
    )


def parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Some at a time, as many as one query may name: proxies and servers limit its length."""
    begin = size = 0
    for at, text in enumerate(texts):
        size += len(text) + 1
        if size > NAMED and at > begin:
            yield texts[begin:at]
            begin, size = at, len(text) + 1
    if begin < len(texts):
        yield texts[begin:]


def alternatives(texts: Sequence[str]) -> str:
    """A regular expression for exactly these, as it stands in a quoted matcher."""
    quoted = (re.escape(text).replace("\\-", "-") for text in sorted(texts))
    return "|".join(text.replace("\\", "\\\\").replace('"', '\\"') for text in quoted)


def equal(name: str, value: str) -> str:
    """A matcher of exactly that value."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{quoted}"'
