"""The list of jobs, and one job with what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from billing.models import Verdict
from portal.web.shapes.frame import Badge, Fact, Tone

JOB_TONES: Mapping[str, Tone] = {
    "COMPLETED": "ok",
    "SUCCEEDED": "ok",
    "RUNNING": "run",
    "SUSPENDED": "wait",
    "PENDING": "wait",
    "REQUEUED": "wait",
    "PREEMPTED": "wait",
    "CANCELLED": "muted",
    "FAILED": "late",
    "TIMEOUT": "late",
    "NODE_FAIL": "late",
    "OUT_OF_MEMORY": "late",
    "BOOT_FAIL": "late",
    "DEADLINE": "late",
}


def job_badge(state: str) -> Badge:
    """The badge of a scheduler's job state; a state that we do not know is shown as it came."""
    return Badge(label=state.replace("_", " ").capitalize(), tone=JOB_TONES.get(state.upper(), "muted"))


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """A job of a tenant in a list."""

    record: int  # key in the job's address
    job_id: str
    name: str
    user: str
    project: str
    gpus: str  # "16 × H100", "3/7 × A100", "" without GPUs
    started: str  # "" while it waits
    duration: str
    badge: Badge
    gpu_hours: str
    cost: str  # "" where unpriced or waived
    running: bool = False  # hours and cost are so far
    verdict: Verdict = Verdict.CHARGED
    by_total: bool = False  # the cost is at the first unit's price: the total of the period decides


@dataclass(frozen=True, kw_only=True)
class Option:
    """One choice of a filter."""

    value: str
    label: str
    selected: bool = False


@dataclass(frozen=True, kw_only=True)
class JobFilters:
    """The filters of the job list as they stand. Names of parameters: the field names, and `q`."""

    period: tuple[Option, ...]
    project: tuple[Option, ...]
    gpu_model: tuple[Option, ...]
    state: tuple[Option, ...]
    user: str
    users: tuple[str, ...]  # suggestions
    q: str  # job id or name
    active: bool  # any filter is set


@dataclass(frozen=True, kw_only=True)
class JobsPage:
    zone: str
    filters: JobFilters
    rows: tuple[JobRow, ...]
    older: str


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One rated piece of a job: a window with one project, one resource and one price."""

    since: str  # "1 Nov 2026, 00:00:00"
    until: str
    project: str
    resource: str  # "GPU"
    held: str  # "57,600": seconds × units, before the share of a unit
    counted_in: str  # "GPU-seconds × 1/7"
    quantity: str  # "16.000000"
    unit: str  # "GPU-hours"
    unit_price: str  # "" unless charged
    amount: str  # before rounding, "" unless charged
    outcome: Literal["invoiced", "pending", "waived", "unpriced"]
    invoice: str = ""  # number, where invoiced
    paid_by: str = ""  # another tenant, on whose invoices it is charged
    reason: str = ""  # why waived or unpriced
    reversal: bool = False  # takes back an earlier piece


@dataclass(frozen=True, kw_only=True)
class JobPage:
    job: JobRow
    zone: str
    facts: tuple[Fact, ...]
    pieces: tuple[Piece, ...]
    formulas: tuple[
        str, ...
    ]  # in words, one per charged price: "57,600 GPU-seconds × 1/7 ÷ 3,600 × $12.00 = …"
