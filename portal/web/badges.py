"""Short states in the color family that each is drawn in; the label alone says everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext_noop

Tone = Literal["ok", "run", "wait", "late", "muted"]


@dataclass(frozen=True)
class Badge:
    label: str
    tone: Tone


INVOICE_BADGES: Mapping[str, Badge] = {
    "draft": Badge(label=gettext_noop("Draft"), tone="muted"),
    "due": Badge(label=gettext_noop("Due"), tone="wait"),
    "past_due": Badge(label=gettext_noop("Past due"), tone="late"),
    "processing": Badge(label=gettext_noop("Processing"), tone="run"),
    "credited": Badge(label=gettext_noop("Credited"), tone="ok"),
    "written_off": Badge(label=gettext_noop("Written off"), tone="muted"),
    "credit_note": Badge(label=gettext_noop("Credit note"), tone="muted"),
    "paid": Badge(label=gettext_noop("Paid"), tone="ok"),
    "disputed": Badge(label=gettext_noop("Disputed"), tone="wait"),
    "charged_back": Badge(label=gettext_noop("Charged back"), tone="late"),
    "void": Badge(label=gettext_noop("Void"), tone="muted"),
}
"""By how an invoice stands: `Settlement`."""

GRANT_BADGES: Mapping[str, Badge] = {
    "rule": Badge(label=gettext_noop("By the scheme"), tone="muted"),
    "top-up": Badge(label=gettext_noop("Top-up"), tone="ok"),
    "gift": Badge(label=gettext_noop("Given"), tone="run"),
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
    "EVICTED": "wait",
    "CANCELLED": "muted",
    "FAILED": "late",
    "TIMEOUT": "late",
    "NODE_FAIL": "late",
    "OUT_OF_MEMORY": "late",
    "OOMKILLED": "late",
    "NODELOST": "late",
    "SHUTDOWN": "late",
    "BOOT_FAIL": "late",
    "DEADLINE": "late",
}


JOB_LABELS = (
    *(gettext_noop("Completed"), gettext_noop("Succeeded"), gettext_noop("Running"), gettext_noop("Pending")),
    *(gettext_noop("Suspended"), gettext_noop("Requeued"), gettext_noop("Preempted")),
    *(gettext_noop("Cancelled"), gettext_noop("Failed"), gettext_noop("Timeout"), gettext_noop("Node fail")),
    *(gettext_noop("Out of memory"), gettext_noop("Boot fail"), gettext_noop("Deadline")),
    *(gettext_noop("Evicted"), gettext_noop("NodeLost"), gettext_noop("OOMKilled")),
)
"""What `job_badge` makes of the states that schedulers have; others are shown as they came."""


def job_badge(state: str) -> Badge:
    """Of a scheduler's job state; a state that we do not know is shown as it came."""
    is_one_word = any(letter.isupper() for letter in state[1:]) and not state.isupper()  # NodeLost
    label = state if is_one_word else state.replace("_", " ").capitalize()
    return Badge(label=label, tone=JOB_TONES.get(state.upper(), "muted"))
