"""From the allocation of a pod and its life to a fact, with notes for the operator on what is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from clusters.connectors.base import BadRow, Row, UnreadableError, UsageFact
from clusters.connectors.prometheus.allocations import PodAllocation
from clusters.connectors.prometheus.coverage import utc
from clusters.connectors.prometheus.hami import VGPUS, vgpu_share, written
from clusters.connectors.prometheus.lifecycle import Life
from clusters.connectors.prometheus.nodes import PRODUCT, NodeLabels, Shape, fraction, model_of, shape
from clusters.connectors.prometheus.options import AccountFrom, Hami, PrometheusOptions
from clusters.connectors.prometheus.pod_requests import CpuAndMemory
from clusters.connectors.prometheus.pods import Attributes, Owners
from clusters.connectors.prometheus.queries import CLAIM_INFO
from clusters.connectors.prometheus.responses import Labels, whole
from portal.excerpt import excerpt

MOST = 2**31 - 1  # devices of one container that can be told; an annotation may say anything


class Facts:
    """Makes rows; what is worth telling of them goes into `notes`."""

    def __init__(self, options: PrometheusOptions, labels: NodeLabels, notes: Notes) -> None:
        self.options = options
        self.labels = labels
        self.notes = notes

    def row(
        self,
        allocation: PodAllocation,
        life: Life,
        owners: Owners,
        attributes: Attributes,
        requests: dict[str, CpuAndMemory],
        *,
        edge: int,
    ) -> Row:
        """A running pod is proved to have held its devices until `edge`, an epoch second.

        What its pod asks for is taken out of `requests`, so that it stands in one fact.
        """
        node = self.labels.at(allocation.node, life.started)
        count = whole(allocation.count)
        try:
            if count is None or not (allocation.is_bare or 1 <= count <= MOST):
                raise UnreadableError("impossible-devices", count=excerpt(allocation.count))
            of = self._shape(allocation, node)
        except UnreadableError as error:
            return BadRow(
                code=error.code,
                values=error.values,
                raw=json.dumps(
                    {**asdict(allocation), "node_labels": dict(node)}, default=str, sort_keys=True
                ),
                source_key=allocation.key,
            )
        request = requests.pop(allocation.uid, CpuAndMemory())
        account = owners.account(allocation)
        self._note(allocation, life, node, account)
        return UsageFact(
            source_key=allocation.key,
            account=account,
            job_id=pod_name(allocation),
            user=owners.users.get(allocation.uid, ""),
            name=owners.jobs.get(allocation.uid) or attributes.job(allocation.uid) or allocation.pod,
            queue=owners.queues.get(allocation.uid, ""),
            qos=attributes.qos_classes.get(allocation.uid, ""),
            priority_class=attributes.priority_classes.get(allocation.uid, ""),
            gpus=count,
            gpu_model=of.model,
            mig_profile=of.profile,
            gpu_share=of.share,
            cpu_milli=request.cpu_milli,
            memory_mib=request.memory_mib,
            nodes=1,
            node_list=allocation.node,
            requested=_requested(allocation, of, request),
            submitted=attributes.created.get(allocation.uid),
            started=life.started,
            ended=life.ended,
            seen_until=max(edge, life.started) if life.ended is None else None,
            state=life.outcome,
        )

    def _shape(self, allocation: PodAllocation, node: Labels) -> Shape:
        if allocation.is_bare:
            return Shape("", "", (1, 1), "")
        if self.options.hami is not Hami.OFF and allocation.resource == VGPUS:
            share = vgpu_share(allocation.of_each, node, self.options.hami)
            return replace(shape(VGPUS, node, self.options), share=share)
        if allocation.resource == CLAIM_INFO:
            raise UnreadableError("unread-claim", claim=excerpt(allocation.annotated))
        if not allocation.annotated:
            return shape(allocation.resource, node, self.options)
        share = fraction(allocation.resource, allocation.annotated, node)
        return Shape(model_of(node, self.options), "", share, allocation.resource.replace("_", "-"))

    def _note(self, allocation: PodAllocation, life: Life, node: Labels, account: str) -> None:
        pod = pod_name(allocation)
        if life.unseen:
            self.notes.unseen[allocation.uid] = pod, life.unseen
        if life.start_seen:
            self.notes.start_seen[allocation.uid] = pod
        if not account and self.options.account.source is not AccountFrom.NAMESPACE:
            self.notes.without_account[allocation.uid] = pod
        if PRODUCT not in node and not allocation.is_bare:
            self.notes.bare_nodes.add(allocation.node or "a node without a name")


def _requested(allocation: PodAllocation, of: Shape, request: CpuAndMemory) -> str:
    if allocation.is_bare:
        return f"cpu={request.cpu_milli}m,memory={request.memory_mib}Mi"
    return f"{of.resource}={allocation.annotated or whole(allocation.count)}{written(allocation.of_each)}"


NAMED = 5  # pods or nodes that a sentence names


@dataclass(slots=True)
class Notes:
    """Gathers while rows are made. Each pod stands once, under its key or name."""

    unseen: dict[str, tuple[str, int]] = field(default_factory=dict)  # by key: pod, seconds unseen
    start_seen: dict[str, str] = field(default_factory=dict)
    without_account: dict[str, str] = field(default_factory=dict)
    bare_nodes: set[str] = field(default_factory=set)

    def sentences(self, gaps: Sequence[tuple[int, int]], *, label: str, remarks: Sequence[str]) -> list[str]:
        """`gaps`: times without kube-state-metrics, epoch seconds. `label`: the one that holds the account."""
        sentences = [
            f"kube-state-metrics was not seen from {utc(begin)} for {end - begin} s: these hours are incomplete."
            for begin, end in gaps
        ]
        if self.unseen:
            longest = max(seconds for _, seconds in self.unseen.values())
            sentences.append(
                f"{count_of(len(self.unseen), 'pod')} vanished while kube-state-metrics was not seen, and "
                f"{'is' if len(self.unseen) == 1 else 'are'} billed to the last sample, up to {longest} s too "
                f"little: {naming([pod for pod, _ in self.unseen.values()])}."
            )
        if self.start_seen:
            sentences.append(
                f"{count_of(len(self.start_seen), 'pod')} without kube_pod_status_scheduled_time "
                f"{'is' if len(self.start_seen) == 1 else 'are'} billed from the first sample: "
                f"{naming(list(self.start_seen.values()))}. Let kube-state-metrics export that metric."
            )
        if self.without_account:
            sentences.append(
                f'{count_of(len(self.without_account), "pod")} without {label} went to the account "": '
                f"{naming(list(self.without_account.values()))}. Where no pod has it, start kube-state-metrics with "
                "--metric-labels-allowlist for that label."
            )
        if self.bare_nodes:
            sentences.append(
                f"The GPU model of {naming(sorted(self.bare_nodes))} is not known, so that MIG slices there cannot be "
                "told from whole GPUs: start kube-state-metrics with --metric-labels-allowlist=nodes=[nvidia.com/*]."
            )
        return sentences + [f"Prometheus remarks: {remark}" for remark in remarks]


def pod_name(allocation: PodAllocation) -> str:
    return f"{allocation.namespace}/{allocation.pod}"


def count_of(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def naming(names: Sequence[str]) -> str:
    some = list(dict.fromkeys(names))
    more = len(some) - NAMED
    return ", ".join(map(excerpt, some[:NAMED])) + (f" and {more:,} more" if more > 0 else "")
