"""Which reasons to write become one e-mail, and when: a tenant has one a day about what it owes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from billing.models import Letter, LetterKind, LetterState
from billing.rules.dunning import morning
from portal.core.tenants.models import Tenant

DAILY = (
    LetterKind.ANNOUNCE,
    LetterKind.CONFIRM,
    LetterKind.REFUSED,
    LetterKind.TOP_UP,
    LetterKind.PAST_DUE,
    LetterKind.REMINDER,
    LetterKind.CARD_GONE,
    LetterKind.CARD_EXPIRED,
    LetterKind.CARD_EXPIRES,
)
"""What waits of these goes out as one e-mail, and as the only one of its day. In the order in which it says them."""
SAYS_IT_TOO = (LetterKind.REMINDER, LetterKind.PAST_DUE)
"""Left out where the same e-mail says more of the same invoice."""
ALONE = "alone"
"""Of a letter that could not be written: so that it stops no other."""
OUT = (LetterState.SENDING, LetterState.SENT, LetterState.KEPT)


def waiting_with(letter: Letter, moment: datetime) -> QuerySet[Letter]:
    """All that waits and is one e-mail with the letter, itself included.

    What only waits for the morning goes along; what the mail server refused keeps its distance, and what could not be
    written is tried alone.
    """
    rows = Letter.objects.filter(state=LetterState.WAITING, tenant=letter.tenant_id)
    if ALONE in letter.told:
        return rows.filter(pk=letter.pk)
    rows = rows.exclude(told__has_key=ALONE)
    if letter.kind in DAILY:
        return rows.filter(Q(tries=0) | Q(not_before__lte=moment), kind__in=DAILY)
    if letter.kind == LetterKind.RECEIPT:
        return rows.filter(kind=LetterKind.RECEIPT, not_before__lte=moment)
    return rows.filter(pk=letter.pk)


def in_order(letters: Iterable[Letter]) -> list[Letter]:
    """As the e-mail says them: the gravest first, then the longest due."""

    def rank(letter: Letter) -> tuple[int, str, int]:
        due = str(letter.invoice.due_on) if letter.invoice else ""
        return DAILY.index(LetterKind(letter.kind)) if letter.kind in DAILY else 0, due, letter.pk

    return sorted(letters, key=rank)


def superfluous(letters: Sequence[Letter]) -> list[Letter]:
    """Reminders of invoices of which the same e-mail says more."""
    more = {letter.invoice_id for letter in letters if letter.kind not in SAYS_IT_TOO}
    first: dict[int | None, Letter] = {}
    reminders = []
    for letter in in_order(letters):
        if letter.kind not in SAYS_IT_TOO:
            continue
        if letter.invoice_id in more or letter.invoice_id in first:
            reminders.append(letter)
        first.setdefault(letter.invoice_id, letter)
    return reminders


def next_day(letters: Sequence[Letter], tenant: Tenant, moment: datetime) -> datetime | None:
    """When these may be sent, where their tenant had its e-mail of today already; None: now.

    What an operator has sent again goes at once.
    """
    if not all(letter.kind in DAILY for letter in letters) or any(
        letter.told.get("at_once") for letter in letters
    ):
        return None
    local = moment.astimezone(tenant.zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    sent = Letter.objects.filter(tenant=tenant, kind__in=DAILY, state__in=OUT, sent_at__gte=midnight)
    return morning(local.date() + timedelta(days=1), tenant.zone) if sent.exists() else None
