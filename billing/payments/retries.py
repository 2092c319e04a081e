"""When a card that was refused is charged again: for the invoice it was refused for, and for its tenant's others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from billing.models import AttemptState, PaymentAttempt
from billing.payments import declines
from billing.receivables.dunning_policies import Policies
from billing.rules.dunning_defaults import Policy

REST = 7
"""Days that a refused card rests where the policy has no retry."""


@dataclass(frozen=True, slots=True)
class CardRest:
    """A refusal after which the same card is left alone for all invoices of its tenant, until its next date."""

    attempt: PaymentAttempt  # the refused one
    until: datetime


def next_try(refused: Sequence[PaymentAttempt], retries: Sequence[int]) -> datetime | None:
    """When an invoice is tried again after these refusals of one means of payment, newest last; None: no more.

    `retries`: days to the next try after the first, second, third. What somebody asked for takes none of these tries.
    """
    if not refused:
        return None
    newest, tries = refused[-1], sum(not attempt.requested_by for attempt in refused)
    if newest.state == AttemptState.NEEDS_ACTION or declines.is_hard(newest) or tries > len(retries):
        return None
    return newest.created_at + timedelta(days=retries[max(tries, 1) - 1] if retries else REST)


def load_refusals(invoices: Collection[int]) -> dict[int, list[PaymentAttempt]]:
    """By invoice: what was refused since the method that is preferred now was saved or renewed, oldest first."""
    attempts: dict[int, list[PaymentAttempt]] = {}
    rows = PaymentAttempt.objects.filter(
        invoice__in=invoices,
        state__in=(AttemptState.FAILED, AttemptState.NEEDS_ACTION),
        method__preferred=True,
        created_at__gte=F("method__added_at"),
    ).order_by("created_at")
    for attempt in rows:
        if attempt.invoice_id is not None:
            attempts.setdefault(attempt.invoice_id, []).append(attempt)
    return attempts


def load_card_rests(tenants: Collection[int], policies: Policies) -> Mapping[int, CardRest]:
    """By tenant: until when its card, which was refused last, is charged for no invoice. Two queries, however many.

    A charge of it that succeeded since ends that. Who is asked for a confirmation is asked for each invoice: that is
    no refusal of the card.
    """
    tried = PaymentAttempt.objects.filter(
        tenant__in=tenants,
        invoice__isnull=False,
        state__in=(AttemptState.FAILED, AttemptState.SUCCEEDED),
        method__preferred=True,
        created_at__gte=F("method__added_at"),
    )
    newest = tried.select_related("invoice", "method").order_by("tenant", "-created_at").distinct("tenant")
    last = [attempt for attempt in newest if attempt.state == AttemptState.FAILED]
    refused = load_refusals([attempt.invoice_id for attempt in last if attempt.invoice_id is not None])
    rests = {}
    for attempt in last:
        if attempt.invoice is not None and attempt.invoice.due_on is not None:
            policy = policies.of(attempt.tenant_id, attempt.invoice.due_on)
            until = _until(attempt, refused.get(attempt.invoice.pk, []), policy)
            rests[attempt.tenant_id] = CardRest(attempt, until)
    return rests


def _until(attempt: PaymentAttempt, refused: Sequence[PaymentAttempt], policy: Policy) -> datetime:
    """The card's next date; where its invoice is not tried any more, as long as the longest distance of the policy."""
    rest = timedelta(days=max(policy.retries, default=REST))
    return next_try(refused, policy.retries) or attempt.created_at + rest
