"""Short states in the color family that each is drawn in; the label alone says everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Tone = Literal["ok", "run", "wait", "late", "muted"]


@dataclass(frozen=True)
class Badge:
    label: str
    tone: Tone


INVOICE_BADGES: Mapping[str, Badge] = {
    "draft": Badge(label="Draft", tone="muted"),
    "due": Badge(label="Due", tone="wait"),
    "past_due": Badge(label="Past due", tone="late"),
    "processing": Badge(label="Processing", tone="run"),
    "credited": Badge(label="Credited", tone="ok"),
    "written_off": Badge(label="Written off", tone="muted"),
    "credit_note": Badge(label="Credit note", tone="muted"),
    "paid": Badge(label="Paid", tone="ok"),
    "disputed": Badge(label="Disputed", tone="wait"),
    "charged_back": Badge(label="Charged back", tone="late"),
    "void": Badge(label="Void", tone="muted"),
}
"""By how an invoice stands: `Settlement`."""

GRANT_BADGES: Mapping[str, Badge] = {
    "rule": Badge(label="By the scheme", tone="muted"),
    "top-up": Badge(label="Top-up", tone="ok"),
    "gift": Badge(label="Given", tone="run"),
}
"""By where credit came from: `GrantKind`."""

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
    """Of a scheduler's job state; a state that we do not know is shown as it came."""
    return Badge(label=state.replace("_", " ").capitalize(), tone=JOB_TONES.get(state.upper(), "muted"))
