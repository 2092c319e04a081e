"""One cluster as its operator sees it: how it is reached, how its passes went, what it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.forms import BaseFormSet, BoundField, Form

    from clusters.connection_form import ConnectionForm
    from clusters.connectors.findings import Finding
    from portal.web.badges import Badge
    from portal.web.shapes.frame import Fact


@dataclass(frozen=True, kw_only=True)
class PassRow:
    """One pass. `window` and `took` are "" for files."""

    began: str
    source: str
    window: str
    outcome: Badge
    took: str
    read: str
    new: str
    revised: str
    quarantined: str
    sentences: tuple[str, ...]  # why it failed, or what was noticed


@dataclass(frozen=True, kw_only=True)
class CapacityRow:
    """GPUs of one model, by the state of their nodes."""

    model: str
    up: str
    drained: str
    down: str
    total: str


@dataclass(frozen=True, kw_only=True)
class VanishedRow:
    job: str
    account: str
    user: str
    holds: str
    started: str
    billed_until: str
    since: str  # when it was first missed


@dataclass(frozen=True, kw_only=True)
class UnseenRow:
    """An hour in which the source did not look all along."""

    begins: str
    seen: str  # "83 %"
    poor: bool  # it keeps its month from being closed


@dataclass(frozen=True, kw_only=True)
class ClusterPage:
    """`refresh` is how often the page asks for itself, as htmx writes it; "" for one that only files feed."""

    name: str
    badge: Badge
    subtitle: str
    complete_through: str
    lag: str
    last: str  # when it was last read successfully
    next: str
    gpus: str  # how many there are now
    idle: str  # how many of them no job can get
    ahead: str  # that its watermark lies in the future; "" for it does not
    trouble: str  # why the last pass failed
    remedy: str  # when it is tried again, and what to do meanwhile
    progress: str  # of the pass under way
    facts: tuple[Fact, ...]
    telemetry: tuple[Fact, ...]  # of what tells how busy jobs were; () for none
    telemetry_trouble: str  # why its last reading failed
    passes: tuple[PassRow, ...]
    capacity: tuple[CapacityRow, ...]
    vanished: tuple[VanishedRow, ...]
    vanished_runs: str  # "2 runs"
    unseen: tuple[UnseenRow, ...]
    coverage_needed: str  # "90 %"
    declared: tuple[str, ...]  # nodes, as the operator declared them
    connected: bool
    kinds: tuple[tuple[str, str], ...]  # it can be connected as: kind, and what is asked then
    may_pull: bool
    may_check: bool
    may_block: bool  # accounts of it can be blocked
    blocked: str  # how many are; "" for none
    findings: Sequence[Finding] | None  # None: nobody has looked
    refresh: str


@dataclass(frozen=True, kw_only=True)
class FieldGroup:
    title: str
    hint: str
    fields: tuple[BoundField, ...]


@dataclass(frozen=True, kw_only=True)
class ConnectionPage:
    name: str
    new: bool
    listener: str  # slurmrestd, Prometheus
    warning: str
    form: ConnectionForm
    groups: tuple[FieldGroup, ...]


@dataclass(frozen=True, kw_only=True)
class WatermarkPage:
    """The form that takes a watermark back. `preview` says what it does, before it is confirmed."""

    name: str
    warning: str  # that it lies in the future
    error: str
    preview: str
    form: Form


@dataclass(frozen=True, kw_only=True)
class NodesPage:
    """The form that declares nodes. `preview` says what it changes, before it is confirmed."""

    name: str
    zone: str  # in which days begin
    error: str
    preview: tuple[tuple[str, str], ...]  # ("Add", "n1: 4 × rtx4090, up")
    rows: BaseFormSet[Any]
