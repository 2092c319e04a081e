"""Saved cards, and what was tried with them, in words."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import AttemptState, MethodState, PaymentAttempt, SavedMethod
from billing.payments.card_notices import localized_card
from portal.web.badges import Badge

PROCESSING = Badge(label=gettext_noop("Processing"), tone="run")
ATTEMPT_BADGES = {
    AttemptState.READY: PROCESSING,
    AttemptState.UNKNOWN: PROCESSING,
    AttemptState.PROCESSING: PROCESSING,
    AttemptState.OFFERED: Badge(label=gettext_noop("Page open"), tone="wait"),
    AttemptState.NEEDS_ACTION: Badge(label=gettext_noop("Needs your confirmation"), tone="late"),
    AttemptState.NEEDS_REVIEW: Badge(label=gettext_noop("Being looked at"), tone="wait"),
    AttemptState.SUCCEEDED: Badge(label=gettext_noop("Paid"), tone="ok"),
    AttemptState.FAILED: Badge(label=gettext_noop("Refused"), tone="late"),
    AttemptState.CANCELED: Badge(label=gettext_noop("Not made"), tone="muted"),
}
METHOD_BADGES = {
    MethodState.USABLE: Badge(label=gettext_noop("Ready"), tone="ok"),
    MethodState.REFUSED: Badge(label=gettext_noop("Refused by its bank"), tone="late"),
    MethodState.GONE: Badge(label=gettext_noop("Removed"), tone="muted"),
}


def label_of(row: SavedMethod) -> str:
    name = {"sepa_debit": _("Bank account")}.get(row.kind) or row.brand.title() or row.kind
    return _("{name} ending in {digits}").format(name=name, digits=row.last4) if row.last4 else name


def means_of(row: PaymentAttempt) -> str:
    """What it was, or is to be, paid with."""
    return label_of(row.method) if row.method else localized_card(row.paid_with) or _("Payment page")


def badge_of(row: PaymentAttempt) -> Badge:
    """How an attempt stands; one whose page was used is not offered any more."""
    used = row.state == AttemptState.OFFERED and row.page_used
    return PROCESSING if used else ATTEMPT_BADGES[AttemptState(row.state)]


def message_of(row: PaymentAttempt) -> str:
    """Why it was refused, or is looked at; "" where it is neither."""
    return _(row.message) if row.state in {AttemptState.FAILED, AttemptState.NEEDS_REVIEW} else ""
