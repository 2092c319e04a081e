"""At which step an invoice is, what comes next and when, and what people have to look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, Sum

from billing.dunning import contacts, overdue_invoices
from billing.dunning.overdue_invoices import OverdueInvoice
from billing.dunning.send import UNTOLD
from billing.models import (
    UNDECIDED,
    AttemptState,
    BlockState,
    DisputeState,
    EventState,
    GatewayEvent,
    Invoice,
    Notice,
    NoticeState,
    PaymentAttempt,
    PaymentDispute,
    SuspendedAccount,
    Suspension,
)
from billing.payments import refunds, refunds_due
from billing.rules.dunning_defaults import Mark, Policy, Step, past_due_from, suspended_from, timeline
from billing.rules.money import Money

AT_ONCE = 20  # of each kind


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


@dataclass(frozen=True, slots=True)
class OverdueTotal:
    """All that is late, in one currency."""

    amount: Money
    invoices: int
    tenants: int


def total_overdue(*, moment: datetime) -> list[OverdueTotal]:
    """By currency, what was due before today. One query."""
    rows = Invoice.objects.filter(due_on__lt=moment.date()).unpaid()
    totals = (
        rows.order_by()
        .values("currency")
        .annotate(sum=Sum("balance__left"), count=Count("pk"), tenants=Count("tenant", distinct=True))
    )
    return [
        OverdueTotal(Money.from_minor(int(row["sum"]), row["currency"]), row["count"], row["tenants"])
        for row in totals.order_by("currency")
    ]


def count_suspended() -> int:
    """How many tenants are suspended. One query."""
    return Suspension.objects.filter(ended_at=None).count()


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """Something that waits for a person."""

    what: str  # "Payment", "Notice"
    sentence: str
    table: str  # where it is dealt with: a model's name in the administration
    slug: str = ""
    number: str = ""  # of the invoice that it is about
    act: str = ""  # what can be done about it here: "refund" to the card, or a "transfer" that is recorded


def list_review_items(*, moment: datetime) -> list[ReviewItem]:
    """All that, twenty of each kind. A fixed number of queries."""
    return [
        *_list_lockout(),
        *_list_payments(),
        *_list_refunds_due(),
        *_list_notices(moment),
        *_list_refused_addresses(),
        *_list_accounts(),
    ]


def _list_lockout() -> Iterator[ReviewItem]:
    if why := overdue_invoices.lockout_reason():
        yield ReviewItem("Key", f"{why} Nothing is charged and no e-mails are sent.", "")


def _list_payments() -> Iterator[ReviewItem]:
    attempts = PaymentAttempt.objects.filter(state=AttemptState.NEEDS_REVIEW).select_related(
        "invoice", "tenant"
    )
    for attempt in attempts.order_by("created_at")[:AT_ONCE]:
        number = attempt.invoice.number or "" if attempt.invoice else ""
        yield ReviewItem("Payment", attempt.message, "paymentattempt", attempt.tenant.slug, number)
    disputes = PaymentDispute.objects.filter(state__in=UNDECIDED).select_related("attempt__invoice", "tenant")
    for row in disputes.order_by("opened_at")[:AT_ONCE]:
        number = row.attempt.invoice.number or "" if row.attempt.invoice else ""
        amount = Money.from_minor(row.amount, row.attempt.currency)
        message = f"The payer disputes {amount.text} {amount.currency}: respond at the gateway."
        if row.state == DisputeState.INQUIRY:
            message = f"A bank inquires about {amount.text} {amount.currency}: respond at the gateway, or refund it."
        yield ReviewItem("Dispute", message, "paymentdispute", row.tenant.slug, number)
    open_refunds = refunds.list_unexplained()
    for back in open_refunds.select_related("attempt__invoice", "tenant").order_by("created_at")[:AT_ONCE]:
        number = back.attempt.invoice.number or "" if back.attempt.invoice else ""
        amount = Money.from_minor(back.amount, back.attempt.currency)
        message = (
            f"{amount.text} {amount.currency} refunded at the gateway without a credit note is due again: issue a "
            "credit note, or keep the balance open in the administration."
        )
        yield ReviewItem("Refund", message, "paymentrefund", back.tenant.slug, number)
    failed = refunds.list_not_refunded().select_related("attempt__invoice", "credit_note", "tenant")
    for back in failed.order_by("created_at")[:AT_ONCE]:
        number = back.attempt.invoice.number or "" if back.attempt.invoice else ""
        amount = Money.from_minor(back.amount, back.attempt.currency)
        message = (
            f"The refund of {amount.text} {amount.currency} for {back.credit_note} failed: {back.reason.rstrip('.')}. "
            "Refund it again, or transfer the money and record the transfer."
        )
        yield ReviewItem("Refund", message, "paymentrefund", back.tenant.slug, number, "refund")
    for event in GatewayEvent.objects.filter(state=EventState.NEEDS_REVIEW).order_by("received_at")[:AT_ONCE]:
        yield ReviewItem("Event", event.reason, "gatewayevent", event.tenant_slug)


def _list_refunds_due() -> Iterator[ReviewItem]:
    """Without those whose refund failed, which `_list_payments` tells with its reason."""
    failed = set(refunds.list_not_refunded().values_list("attempt__invoice", flat=True))
    for refund_due in refunds_due.list_due(limit=AT_ONCE):
        if refund_due.invoice.pk not in failed:
            act = "refund" if refund_due.to_card.amount else "transfer"
            number, slug = refund_due.invoice.number or "", refund_due.invoice.tenant.slug
            yield ReviewItem("Refund due", refund_due.sentence, "", slug, number, act)


def _list_notices(moment: datetime) -> Iterator[ReviewItem]:
    stuck = Q(state=NoticeState.SENDING, sent_at__lt=moment - UNTOLD)
    rows = Notice.objects.filter(stuck | Q(state=NoticeState.FAILED)).select_related("tenant", "invoice")
    for row in rows.order_by("created_at").defer("text", "html")[:AT_ONCE]:
        why = row.reason or "No answer from the mail server: the e-mail may have arrived."
        number = row.invoice.number or "" if row.invoice else ""
        yield ReviewItem("E-mail", f"{row.get_kind_display()}: {why}", "notice", row.tenant.slug, number)


def _list_refused_addresses() -> Iterator[ReviewItem]:
    for notice, refused in contacts.list_refused_notices(limit=AT_ONCE):
        for to, why in refused.items():
            message = f"The mail server refuses {to}: {why.rstrip('.')}. Correct the tenant's billing e-mail."
            yield ReviewItem("E-mail address", message, "notice", notice.tenant.slug)


def _list_accounts() -> Iterator[ReviewItem]:
    rows = SuspendedAccount.objects.filter(state__in=(BlockState.REQUESTED, BlockState.LIFTING)).exclude(
        error=""
    )
    rows = rows.select_related("account__cluster", "tenant", "suspension__invoice")
    for row in rows.order_by("pk")[:AT_ONCE]:
        act = "blocked" if row.state == BlockState.REQUESTED else "unblocked"
        message = f"{row.account} is not {act} yet: {row.error} Retrying."
        yield ReviewItem(
            "Suspension", message, "suspendedaccount", row.tenant.slug, row.suspension.invoice.number or ""
        )
