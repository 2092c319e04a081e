"""Saved cards, and what was tried with them, in words."""

from __future__ import annotations

from billing.models import AttemptState, MethodState, PaymentAttempt, SavedMethod
from portal.web.badges import Badge

PROCESSING = Badge(label="Processing", tone="run")
ATTEMPT_BADGES = {
    AttemptState.READY: PROCESSING,
    AttemptState.UNKNOWN: PROCESSING,
    AttemptState.PROCESSING: PROCESSING,
    AttemptState.OFFERED: Badge(label="Page open", tone="wait"),
    AttemptState.NEEDS_ACTION: Badge(label="Needs your confirmation", tone="late"),
    AttemptState.NEEDS_REVIEW: Badge(label="Being looked at", tone="wait"),
    AttemptState.SUCCEEDED: Badge(label="Paid", tone="ok"),
    AttemptState.FAILED: Badge(label="Refused", tone="late"),
    AttemptState.CANCELED: Badge(label="Not made", tone="muted"),
}
METHOD_BADGES = {
    MethodState.USABLE: Badge(label="Ready", tone="ok"),
    MethodState.REFUSED: Badge(label="Refused by its bank", tone="late"),
    MethodState.GONE: Badge(label="Removed", tone="muted"),
}


def label_of(row: SavedMethod) -> str:
    name = {"sepa_debit": "Bank account"}.get(row.kind) or row.brand.title() or row.kind
    return f"{name} ending in {row.last4}" if row.last4 else name


def means_of(row: PaymentAttempt) -> str:
    """What it was, or is to be, paid with."""
    return label_of(row.method) if row.method else row.paid_with or "Payment page"


def badge_of(row: PaymentAttempt) -> Badge:
    """How an attempt stands; one whose page was used is not offered any more."""
    used = row.state == AttemptState.OFFERED and row.page_used
    return PROCESSING if used else ATTEMPT_BADGES[AttemptState(row.state)]


def message_of(row: PaymentAttempt) -> str:
    """Why it was refused, or is looked at; "" where it is neither."""
    return row.message if row.state in {AttemptState.FAILED, AttemptState.NEEDS_REVIEW} else ""
