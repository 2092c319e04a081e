"""From what a pod held, and from when to when, to a fact."""

from __future__ import annotations

import json
from dataclasses import asdict

from clusters.connectors.base import BadRow, Row, UsageFact
from clusters.connectors.mig import UnknownShareError
from clusters.connectors.prometheus.answers import whole
from clusters.connectors.prometheus.attributes import Attributes
from clusters.connectors.prometheus.diagnostics import Notes, pod_name
from clusters.connectors.prometheus.lifecycle import Life
from clusters.connectors.prometheus.nodes import Labels, NodeLabels
from clusters.connectors.prometheus.options import AccountFrom, PrometheusOptions
from clusters.connectors.prometheus.pods import Owners, PodAllocation
from clusters.connectors.prometheus.shapes import PRODUCT, Shape, fraction, model_of, shape
from portal.excerpt import excerpt

MOST = 2**31 - 1  # devices of one container that can be told; an annotation may say anything


class Facts:
    """Makes rows; what is worth telling of them goes into `notes`."""

    def __init__(self, options: PrometheusOptions, labels: NodeLabels, notes: Notes) -> None:
        self.options = options
        self.labels = labels
        self.notes = notes

    def row(
        self, allocation: PodAllocation, life: Life, owners: Owners, attributes: Attributes, *, edge: int
    ) -> Row:
        """A running pod is proved to have held its devices until `edge`, an epoch second."""
        node = self.labels.at(allocation.node, life.started)
        count = whole(allocation.count)
        try:
            if count is None or not 1 <= count <= MOST:
                raise UnknownShareError(
                    f"It asks for {excerpt(allocation.count)} devices, which is no count."
                )
            of = self._shape(allocation, node)
        except UnknownShareError as error:
            return BadRow(
                reason=str(error),
                code="impossible-count" if count is None or not 1 <= count <= MOST else "unknown-share",
                raw=json.dumps(
                    {**asdict(allocation), "node_labels": dict(node)}, default=str, sort_keys=True
                ),
                source_key=allocation.key,
            )
        account = owners.account(allocation)
        self._note(allocation, life, node, account)
        return UsageFact(
            source_key=allocation.key,
            account=account,
            job_id=pod_name(allocation),
            name=allocation.pod,
            queue=owners.queues.get(allocation.uid, ""),
            qos=attributes.qos_classes.get(allocation.uid, ""),
            priority_class=attributes.priority_classes.get(allocation.uid, ""),
            gpus=count,
            gpu_model=of.model,
            mig_profile=of.profile,
            gpu_share=of.share,
            nodes=1,
            node_list=allocation.node,
            requested=f"{of.resource}={allocation.annotated or count}",
            submitted=attributes.created.get(allocation.uid),
            started=life.started,
            ended=life.ended,
            seen_until=max(edge, life.started) if life.ended is None else None,
            state=life.state,
        )

    def _shape(self, allocation: PodAllocation, node: Labels) -> Shape:
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
        if PRODUCT not in node:
            self.notes.bare_nodes.add(allocation.node or "a node without a name")
