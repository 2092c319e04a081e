"""What an operator should know of a pass: sentences, however many pods each is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clusters.connectors.prometheus.coverage import utc
from clusters.connectors.prometheus.pods import PodAllocation
from portal.excerpt import excerpt

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
