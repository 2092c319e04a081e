"""How one connection wants its series read: matcher, label names, whose account, what a device is worth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from clusters.connectors.base import ConnectorError

_MATCHER = re.compile(r'\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"\s*', re.ASCII)
_LABEL = re.compile(r"[a-zA-Z_]\w*", re.ASCII)


class ChargeFrom(StrEnum):
    """From when a pod is charged: once it holds its devices, or once its kubelet took it up."""

    SCHEDULED = "scheduled"
    STARTED = "started"


class AccountFrom(StrEnum):
    """Where a pod's account is written."""

    NAMESPACE = "namespace"  # its namespace's name
    NAMESPACE_LABEL = "namespace label"
    POD_LABEL = "pod label"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Whose usage a pod is. `label` as kube-state-metrics writes it: `label_kueue_x_k8s_io_cluster_queue_name`."""

    source: AccountFrom = AccountFrom.NAMESPACE
    label: str = ""


KUEUE = Attribution(source=AccountFrom.POD_LABEL, label="label_kueue_x_k8s_io_cluster_queue_name")
VOLCANO = Attribution(source=AccountFrom.POD_LABEL, label="label_volcano_sh_queue_name")
KAI = Attribution(source=AccountFrom.POD_LABEL, label="label_kai_scheduler_queue")
KAI_BEFORE_0_6 = Attribution(source=AccountFrom.POD_LABEL, label="label_runai_queue")
QUEUE_LABELS = tuple(of.label for of in (KUEUE, VOLCANO, KAI, KAI_BEFORE_0_6))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNames:
    """What the labels of kube-state-metrics are called here. "": `exported_pod` where there is one, else `pod`."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    node: str = ""

    def spellings(self, what: str) -> tuple[str, ...]:
        """Names to look under, the first that says something counts."""
        told: str = getattr(self, what)
        return (told,) if told else (f"exported_{what}", what)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions:
    """Raises `ConnectorError` for a matcher or label name that is none."""

    matcher: str = ""  # put into every selector: cluster="x", or several with commas between
    labels: LabelNames = field(default_factory=LabelNames)
    account: Attribution = field(default_factory=Attribution)
    charge_from: ChargeFrom = ChargeFrom.SCHEDULED
    resources: str = (
        "nvidia_com_(gpu|mig_.+)(_shared)?"  # regular expression, as kube-state-metrics spells them
    )
    reservations: tuple[str, ...] = (
        "kai-resource-reservation",
        "runai-reservation",
    )  # the platform's namespaces
    shares: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # before the known ones
    models: Mapping[str, str] = field(
        default_factory=dict
    )  # what to call a product; else as the node says it
    parameters: Mapping[str, str | list[str]] = field(default_factory=dict)  # with every query

    def __post_init__(self) -> None:
        if self.matcher and not is_matcher(self.matcher):
            raise ConnectorError(
                f'The matcher {self.matcher!r} is none: write it as cluster="x", several with commas between.',
                retry=False,
            )
        names = (self.account.label, *(getattr(self.labels, name) for name in self.labels.__slots__))
        for name in filter(None, names):
            if not _LABEL.fullmatch(name):
                raise ConnectorError(
                    f"{name!r} is no label name: write it as kube-state-metrics does, like label_team.",
                    retry=False,
                )
        if self.account.source is not AccountFrom.NAMESPACE and not self.account.label:
            raise ConnectorError("Name the label that holds the account.", retry=False)


def is_matcher(text: str) -> bool:
    """Whether it can stand between the braces of a selector, and does nothing else there."""
    at = 0
    while found := _MATCHER.match(text, at):
        at = found.end()
        if at == len(text):
            return True
        if text[at] != ",":
            return False
        at += 1
    return False
