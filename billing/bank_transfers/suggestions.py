"""What a transfer that waits may be for: hints for people, who decide."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from billing.models import Invoice, Transfer, TransferPart

MOST = 4  # hints for a transfer
CANDIDATES = 400  # open invoices, the oldest
_WORD = re.compile(r"\w{4,}")
_COMMON = frozenset(
    ("gmbh", "company", "limited", "university", "universität", "institut", "institute", "labs")
)


@dataclass(frozen=True, slots=True)
class Hint:
    """An open invoice that it may pay, and by what that is seen."""

    number: str
    tenant: str
    slug: str
    left: int  # minor units
    currency: str
    reason: str  # "same amount, paid from this account before"


def list_hints(rows: Sequence[Transfer]) -> dict[int, list[Hint]]:
    """By transfer its hints, the best first. Two queries, however many transfers."""
    came = [row for row in rows if row.amount > 0]
    if not came:
        return {}
    payers = _tenants_of([row.payer_iban for row in came if row.payer_iban])
    tenant_ids = {tenant for tenants in payers.values() for tenant in tenants}
    words = {word for row in came for word in _words(row.payer)}
    condition = Q(balance__left__in={row.amount for row in came}) | Q(tenant__in=tenant_ids)
    for word in sorted(words)[:50]:
        condition |= Q(tenant__name__icontains=word)
    invoices = list(
        Invoice.objects.unpaid()
        .filter(condition, currency__in={row.currency for row in came})
        .select_related("tenant")
        .order_by("due_on", "pk")[:CANDIDATES]
    )
    return {row.pk: _hints_of(row, invoices, payers.get(row.payer_iban, set())) for row in came}


def _hints_of(row: Transfer, invoices: Iterable[Any], payers: set[int]) -> list[Hint]:
    ranking: list[tuple[int, Hint]] = []
    for invoice in invoices:
        if invoice.currency != row.currency:
            continue
        same, has_paid = invoice.balance.left == row.amount, invoice.tenant_id in payers
        alike = bool(_words(row.payer) & _words(invoice.tenant.name))
        why = [
            reason
            for reason, holds in (
                ("same amount", same),
                ("this account paid for them before", has_paid),
                ("a similar name", alike),
            )
            if holds
        ]
        if why:
            weight = 4 * same + 3 * has_paid + 2 * alike
            hint = Hint(
                invoice.number,
                invoice.tenant.name,
                invoice.tenant.slug,
                invoice.balance.left,
                row.currency,
                ", ".join(why),
            )
            ranking.append((-weight, hint))
    ranking.sort(key=lambda hint: hint[0])
    return [hint for _, hint in ranking[:MOST]]


def _tenants_of(accounts: Sequence[str]) -> dict[str, set[int]]:
    tenants: dict[str, set[int]] = defaultdict(set)
    parts = TransferPart.objects.filter(transfer__payer_iban__in=accounts, amount__gt=0, undone_by=None)
    for account, tenant in parts.values_list("transfer__payer_iban", "tenant").distinct():
        tenants[account].add(tenant)
    return tenants


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)} - _COMMON
