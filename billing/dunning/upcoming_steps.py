"""At which step an invoice is, what comes next and when."""

from __future__ import annotations

from billing.dunning.overdue_invoices import OverdueInvoice
from billing.models import Suspension
from billing.rules.dunning_defaults import Mark, Policy, Step, past_due_from, suspended_from, timeline


def next_step(late: OverdueInvoice, policy: Policy) -> Mark | None:
    """The first step that was not taken yet, with the day on which it will be; None where none is left."""
    for mark in timeline(policy, due_on=late.due_on):
        if mark.step is Step.SUSPEND:
            if late.suspended:
                continue
            day = suspended_from(policy, due_on=late.due_on, announced_on=late.announced_on)
            return Mark(max(day or mark.day, late.today), Step.SUSPEND)
        if mark.step is Step.WRITE_OFF:
            return mark
        if policy.emails and not _is_step_done(late, mark):
            return Mark(max(mark.day, late.today), mark.step, mark.number)
    return None


def _is_step_done(late: OverdueInvoice, mark: Mark) -> bool:
    if mark.step is Step.REMINDER:
        return mark.number <= late.reminders
    return late.past_due_notified if mark.step is Step.PAST_DUE else late.announced or late.suspended


def is_past_due(late: OverdueInvoice, policy: Policy) -> bool:
    """Whether it counts as past due today, by the policy."""
    return late.today >= past_due_from(policy, due_on=late.due_on)


def count_suspended() -> int:
    """How many tenants are suspended. One query."""
    return Suspension.objects.filter(ended_at=None).count()
