"""How the page of a month-end close names outcomes, decisions and blockers."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from billing.invoicing.close_results import Outcome
from billing.models import Decision
from portal.web.badges import Badge

READY = "ready"
SHOWN: dict[str, tuple[str, ...]] = {
    READY: (Outcome.ISSUED, Outcome.CORRECTED),
    "issued": (Outcome.ISSUED, Outcome.CORRECTED, Outcome.ALREADY),
    "stuck": (Outcome.BLOCKED, Outcome.FAILED),
    "pending": (Outcome.PENDING_APPROVAL,),
    "nothing": (Outcome.NOTHING, Outcome.CARRIED, Outcome.ALREADY),
    "without": (Outcome.NOTHING, Outcome.CARRIED),
}
"""By the name in an address, the outcomes that it shows."""
TITLES = {
    READY: gettext_noop("Ready"),
    "issued": gettext_noop("Issued"),
    "stuck": gettext_noop("Blocked"),
    "pending": gettext_noop("Held for approval"),
    "nothing": gettext_noop("Skipped"),
    "without": gettext_noop("No invoice"),
}

BADGES = {
    Outcome.ISSUED: Badge(label=gettext_noop("Issued"), tone="ok"),
    Outcome.CORRECTED: Badge(label=gettext_noop("Corrected"), tone="ok"),
    Outcome.ALREADY: Badge(label=gettext_noop("Already issued"), tone="muted"),
    Outcome.NOTHING: Badge(label=gettext_noop("No charges"), tone="muted"),
    Outcome.CARRIED: Badge(label=gettext_noop("Carried forward"), tone="muted"),
    Outcome.PENDING_APPROVAL: Badge(label=gettext_noop("Held for approval"), tone="wait"),
    Outcome.BLOCKED: Badge(label=gettext_noop("Blocked"), tone="late"),
    Outcome.FAILED: Badge(label=gettext_noop("Failed"), tone="late"),
}
READY_BADGE = Badge(label=gettext_noop("Ready"), tone="ok")
DECISIONS = {
    Decision.WAITING: Badge(label=gettext_noop("Held for approval"), tone="wait"),
    Decision.APPROVED: Badge(label=gettext_noop("Approved"), tone="ok"),
    Decision.REFUSED: Badge(label=gettext_noop("Refused"), tone="late"),
}
BLOCKERS = {
    "not-over": (
        gettext_noop("The period has not ended"),
        gettext_noop("Close it after its end, in the tenant’s time zone."),
    ),
    "earlier-open": (
        gettext_noop("An earlier month is open"),
        gettext_noop("Close months in order: choose the earlier one first."),
    ),
    "earlier-pending-approval": (
        gettext_noop("An earlier month is held for approval"),
        gettext_noop("Approve or refuse it above, then close that month first."),
    ),
    "pending": (
        gettext_noop("Held for approval"),
        gettext_noop("Open the draft. Issuing the month lists it above, to approve or refuse."),
    ),
    "rerating": (
        gettext_noop("Usage is being rated again"),
        gettext_noop("Wait, then preview again. Administration → Outbox messages lists what is left."),
    ),
    "unpriced": (
        gettext_noop("Usage without a price"),
        gettext_noop("Give the tenant a plan, or its plan a price, then preview again."),
    ),
    "incomplete": (
        gettext_noop("Usage may be missing"),
        gettext_noop("Sync the cluster through the period’s end, or give a reason when you issue."),
    ),
    "no-seller": (
        gettext_noop("No seller"),
        gettext_noop("Invoices need the seller’s name, address and, in the EU, VAT ID."),
    ),
    "no-key": (
        gettext_noop("Documents cannot be signed"),
        gettext_noop("Set CLUSTERTAB_SECRET_KEYS for all processes, and restart them."),
    ),
    "no-xrechnung": (
        gettext_noop("Missing for an XRechnung"),
        gettext_noop("See the note at the tenant. Without it, a public buyer rejects the invoice."),
    ),
    "untaxed": (gettext_noop("Unknown tax treatment"), gettext_noop("See the note at the tenant.")),
    "mixed-currencies": (
        gettext_noop("Two currencies in one period"),
        gettext_noop("Move the change of plan to a period’s start."),
    ),
}
"""By code of a blocker its title, and how to fix it."""
ENTRIES = {
    "no-seller": "admin:billing_seller_changelist",
    "no-xrechnung": "admin:tenants_tenant_changelist",
}
"""Where what is missing is entered."""
