"""How one connection wants its series read: matcher, label names, whose account, what a device is worth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from clusters.connectors.base import BusySource, ConnectorError
from clusters.connectors.prometheus.catalog import (
    CATALOGUE,
    QUEUES,
    SAMPLED,
    Metric,
    Preset,
    SampledSeries,
    chosen,
)
from clusters.connectors.prometheus.matchers import refuse_other
from clusters.connectors.prometheus.token_options import TokenOptions
from portal.excerpt import quoted

_LABEL = re.compile(r"[a-zA-Z_]\w*", re.ASCII)


class ChargeFrom(StrEnum):
    """From when a pod is charged: once it holds its devices, or once its kubelet took it up."""

    SCHEDULED = "scheduled"
    STARTED = "started"


class CpuMemory(StrEnum):
    """Of which pods CPU and memory are read, as they were requested."""

    OFF = "off"
    DEVICES = "devices"  # of those that hold devices
    ALL = "all"  # of all pods: those without devices are runs, too


class Hami(StrEnum):
    """By what a vGPU of HAMi counts as a part of its GPU."""

    OFF = "off"  # there is no HAMi: nvidia.com/gpu are GPUs
    CORES = "cores"  # where none are requested, by memory
    MEMORY = "memory"  # where none is requested it has all of it
    LARGER = "larger"  # of the two


class Claims(StrEnum):
    """What becomes of pods that hold devices by resource claims: which, no metric tells."""

    OFF = "off"  # nothing: their claims hold no GPUs
    QUARANTINE = "quarantine"


class AccountFrom(StrEnum):
    """Where a pod's account is written."""

    NAMESPACE = "namespace"  # its namespace's name
    NAMESPACE_LABEL = "namespace label"
    POD_LABEL = "pod label"
    QUEUE = "queue"  # the queue of the preset's scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Whose usage a pod is. `label` as kube-state-metrics writes it: `label_kueue_x_k8s_io_cluster_queue_name`."""

    source: AccountFrom = AccountFrom.NAMESPACE
    label: str = ""


KUEUE, VOLCANO, KAI = (
    Attribution(source=AccountFrom.POD_LABEL, label=QUEUES[preset].labels[0])
    for preset in (Preset.KUEUE, Preset.VOLCANO, Preset.KAI)
)
LOCAL_QUEUES = ("label_kueue_x_k8s_io_local_queue_name", "label_kueue_x_k8s_io_queue_name")
QUEUE_LABELS = (*(label for series in QUEUES.values() for label in series.labels), *LOCAL_QUEUES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNames:
    """What the labels of kube-state-metrics are called here. "": `exported_pod` where there is one, else `pod`."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    node: str = ""

    def spellings(self, what: str) -> tuple[str, ...]:
        """Names to look under, the first that says something counts."""
        name: str = getattr(self, what)
        return (name,) if name else (f"exported_{what}", what)

    def listed(self, *whats: str) -> str:
        """All of these names, as an aggregation has them."""
        return ",".join(name for what in whats for name in self.spellings(what))


class Scope(StrEnum):
    """How far from a run's own devices its utilisation may be taken, where they say nothing."""

    OFF = "off"  # none is read
    DEVICE = "device"  # no further: unknown is told as unknown
    NODE = "node"  # these and those below: averages of others, device by device where it is known
    MODEL = "model"
    CLUSTER = "cluster"


_REACHED: Mapping[Scope, tuple[BusySource, ...]] = {
    Scope.OFF: (),
    Scope.DEVICE: (),
    Scope.NODE: (BusySource.NODE,),
    Scope.MODEL: (BusySource.NODE, BusySource.MODEL),
    Scope.CLUSTER: (BusySource.NODE, BusySource.MODEL, BusySource.CLUSTER),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """How it is read how busy devices are. Raises `ConnectorError` for what cannot be meant.

    `divisor` makes 0 to 1 of a metric's values, against the catalogue. `matcher` None: the one of the connection.
    """

    scope: Scope = Scope.DEVICE
    metric: str = ""  # "": the first of the catalogue that a node has and that says whether a device worked
    divisor: Decimal | None = None
    matcher: str | None = None

    def __post_init__(self) -> None:
        if self.metric and not _LABEL.fullmatch(self.metric):
            raise ConnectorError(
                "option-metric-name", retry=False, metric=quoted(self.metric), example=CATALOGUE[0].name
            )
        if self.divisor is not None and not (self.divisor.is_finite() and self.divisor > 0):
            raise ConnectorError("option-divisor", retry=False)
        refuse_other(self.matcher or "")
        try:
            chosen(self.metric, self.divisor)
        except KeyError:
            raise ConnectorError("option-divisor-missing", retry=False, metric=self.metric) from None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """By preference."""
        return chosen(self.metric, self.divisor)

    @property
    def wider(self) -> tuple[BusySource, ...]:
        """Averages that may stand in, the nearest first."""
        return _REACHED[self.scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class UseOptions:
    """Declared meters of what pods use beyond what they request; "": it is not read. Raises `ConnectorError` for none.

    `matcher` is that of cAdvisor's series; None: the one of the connection.
    """

    cpu: str = ""  # core-hours
    memory: str = ""  # GiB-hours
    matcher: str | None = None

    def __post_init__(self) -> None:
        refuse_other(self.matcher or "")
        if not (self.cpu or self.memory):
            raise ConnectorError("option-use-unnamed", retry=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions:
    """Raises `ConnectorError` for a matcher or label name that is none."""

    matcher: str = ""  # put into every selector: cluster="x", or several with commas between
    labels: LabelNames = field(default_factory=LabelNames)
    account: Attribution = field(default_factory=Attribution)
    user_label: str = ""  # of pods: who started it
    job_labels: tuple[str, ...] = ()  # of pods: the first that a pod has names its job, before its owner
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
    cpu_memory: CpuMemory = CpuMemory.DEVICES
    hami: Hami = Hami.OFF
    claims: Claims = Claims.QUARANTINE
    use: UseOptions | None = None  # pods cost the larger of request and use; None: what they request
    preset: Preset | None = None
    utilisation: Utilisation = field(default_factory=Utilisation)
    energy: bool = False  # the power of devices is read, too
    pods: bool = True  # False: no usage of pods is read, as where Prometheus watches no Kubernetes
    tokens: TokenOptions | None = None
    volumes: str = (
        ""  # the declared meter whose sums are GiB-hours of persistent volumes; "": they are not read
    )
    volume_label: str = ""  # of claims: their account, before that of their namespace

    def __post_init__(self) -> None:
        refuse_other(self.matcher)
        spelled = (getattr(self.labels, name) for name in self.labels.__slots__)
        names = (self.account.label, self.user_label, *self.job_labels, self.volume_label, *spelled)
        for name in filter(None, names):
            if not _LABEL.fullmatch(name):
                raise ConnectorError("option-label-name", retry=False, label=quoted(name))
        if self.volumes and not self.pods:
            raise ConnectorError("option-volumes-alone", retry=False)
        if self.volume_label and not self.volumes:
            raise ConnectorError("option-volume-label-alone", retry=False)
        if self.use is not None and (not self.pods or self.cpu_memory is CpuMemory.OFF):
            raise ConnectorError("option-use-alone", retry=False)
        if not self.pods and self.tokens is None:
            raise ConnectorError("option-nothing-read", retry=False)
        if self.account.source is AccountFrom.QUEUE and self.preset not in QUEUES:
            raise ConnectorError("option-preset-missing", retry=False, presets=", ".join(QUEUES))
        if self.account.source not in {AccountFrom.NAMESPACE, AccountFrom.QUEUE} and not self.account.label:
            raise ConnectorError("option-account-label-missing", retry=False)

    @property
    def queue_labels(self) -> tuple[str, ...]:
        """Labels of pods, the first of which that a pod has names its queue."""
        series = QUEUES.get(self.preset) if self.preset else None
        return series.labels if series else QUEUE_LABELS

    @property
    def holding(self) -> str:
        """A regular expression of the resources by which a pod is a run."""
        return f"({self.resources})|cpu|memory" if self.cpu_memory is CpuMemory.ALL else self.resources

    @property
    def account_label(self) -> str:
        """The label that holds the account; "" where it is the namespace's name."""
        return self.queue_labels[0] if self.account.source is AccountFrom.QUEUE else self.account.label

    @property
    def has_sums(self) -> bool:
        """Whether something is read that declared meters count."""
        return self.tokens is not None or self.use is not None or bool(self.volumes)

    @property
    def sampled(self) -> SampledSeries | None:
        """What users hold, where it is read from a gauge of it instead of from pods."""
        return SAMPLED.get(self.preset) if self.preset else None

    @property
    def busy_matcher(self) -> str:
        """That of series that tell how busy devices are."""
        matcher = self.utilisation.matcher
        return self.matcher if matcher is None else matcher
