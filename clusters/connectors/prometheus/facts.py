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
from clusters.connectors.prometheus.pods import Held, Owners
from clusters.connectors.prometheus.shapes import PRODUCT, Shape, fraction, model_of, shape
from portal.excerpt import excerpt

MOST = 2**31 - 1  # devices of one container that can be told; an annotation may say anything


class Facts:
    """Makes rows; what is worth telling of them goes into `notes`."""

    def __init__(self, options: PrometheusOptions, labels: NodeLabels, notes: Notes) -> None:
        self.options = options
        self.labels = labels
        self.notes = notes

    def row(self, held: Held, life: Life, owners: Owners, attributes: Attributes, *, edge: int) -> Row:
        """A running pod is proved to have held its devices until `edge`, an epoch second."""
        node = self.labels.at(held.node, life.started)
        count = whole(held.count)
        try:
            if count is None or not 1 <= count <= MOST:
                raise UnknownShareError(f"It asks for {excerpt(held.count)} devices, which is no count.")
            of = self._shape(held, node)
        except UnknownShareError as error:
            return BadRow(
                reason=str(error),
                code="impossible-count" if count is None or not 1 <= count <= MOST else "unknown-share",
                raw=json.dumps({**asdict(held), "node_labels": dict(node)}, default=str, sort_keys=True),
                source_key=held.key,
            )
        account = owners.account(held)
        self._note(held, life, node, account)
        return UsageFact(
            source_key=held.key,
            account=account,
            job_id=pod_name(held),
            name=held.pod,
            queue=owners.queues.get(held.uid, ""),
            qos=attributes.qos_classes.get(held.uid, ""),
            priority_class=attributes.priority_classes.get(held.uid, ""),
            gpus=count,
            gpu_model=of.model,
            mig_profile=of.profile,
            gpu_share=of.share,
            nodes=1,
            node_list=held.node,
            requested=f"{of.resource}={held.annotated or count}",
            submitted=attributes.created.get(held.uid),
            started=life.started,
            ended=life.ended,
            seen_until=max(edge, life.started) if life.ended is None else None,
            state=life.state,
        )

    def _shape(self, held: Held, node: Labels) -> Shape:
        if not held.annotated:
            return shape(held.resource, node, self.options)
        share = fraction(held.resource, held.annotated, node)
        return Shape(model_of(node, self.options), "", share, held.resource.replace("_", "-"))

    def _note(self, held: Held, life: Life, node: Labels, account: str) -> None:
        pod = pod_name(held)
        if life.unseen:
            self.notes.unseen[held.uid] = pod, life.unseen
        if life.start_seen:
            self.notes.start_seen[held.uid] = pod
        if not account and self.options.account.source is not AccountFrom.NAMESPACE:
            self.notes.without_account[held.uid] = pod
        if PRODUCT not in node:
            self.notes.bare_nodes.add(held.node or "a node without a name")
