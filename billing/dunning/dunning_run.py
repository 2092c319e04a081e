"""A round of dunning: what the days ask for is written down, whoever owes too long is suspended, who paid is not.

It finds everything from the tables, so that rounds may be missed, doubled, or killed anywhere: each notice and each
suspension has a key of its own, and is made once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from billing.dunning import notices, overdue_invoices, suspensions
from billing.dunning.overdue_invoices import OverdueInvoice
from billing.notifications import document_notices
from billing.payments import card_notices, gateway_access, webhook_events
from billing.receivables import credit_balance, invoice_events
from billing.receivables.dunning_policies import Policies


@dataclass(slots=True)
class DunningTally:
    """What a round did, in numbers; `waits`: why it did nothing, in a sentence."""

    late: int = 0
    written: int = 0
    suspended: int = 0
    ended: int = 0
    hold_reason: str = ""
    tenants: set[int] = field(default_factory=set)  # who are suspended


def run_dunning(*, moment: datetime) -> DunningTally:
    """One round. Nothing is written or suspended while what was paid by card cannot be known; who paid is let go."""
    done = DunningTally()
    policies = Policies()
    credit_balance.use_balances(moment=moment)
    late = overdue_invoices.list_overdue(moment=moment)
    done.late = len(late)
    _record_overdue(late)
    done.ended = suspensions.end_suspensions(late, policies, moment=moment)
    done.hold_reason = _hold_reason(moment)
    if done.hold_reason:
        return done
    acted = [invoice for invoice in late if not invoice.pause_reason and not invoice.under_way]
    rows = [
        notice
        for invoice in acted
        for notice in notices.list_calendar_notices(
            invoice, policies.of(invoice.tenant, invoice.due_on), moment=moment
        )
    ]
    rows += notices.list_attempt_notices(late, policies, moment=moment)
    rows += card_notices.notify_expiring_cards(policies, moment=moment)
    rows += notices.list_top_up_notices(policies, moment=moment)
    rows += document_notices.write_money_notices(policies, moment=moment)
    done.written = notices.write_notices(rows)
    done.suspended = suspensions.begin_suspensions(acted, policies, moment=moment)
    return done


@transaction.atomic
def _record_overdue(late: list[OverdueInvoice]) -> None:
    """Whatever pauses reminders, the invoice is late: whoever reads events is told so once."""
    invoice_events.record_overdue((row.pk, row.tenant, row.crossing) for row in late)


def _hold_reason(moment: datetime) -> str:
    if not gateway_access.is_configured():
        return ""
    if overdue_invoices.lockout_reason():
        return "The payment service refuses our key: what is paid is not known, and nobody is written to."
    if webhook_events.is_behind(moment=moment):
        return "What the payment service told of is not taken over yet: nobody is written to meanwhile."
    return ""
