"""How often invoices were due again after nothing was left of them: what was announced before holds no more."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date
from typing import cast

from django.db.models import Exists, OuterRef, Q

from billing.models import Invoice, Payment, WriteOff
from billing.rules.dunning_defaults import in_order, times_reopened


def may_be_reopened() -> Q:
    """Of the outer query's invoice: whether a payment of it, or its write-off, was ever taken back."""
    back = Payment.objects.filter(invoice=OuterRef("pk"), amount__lt=0)
    undone = WriteOff.objects.filter(invoice=OuterRef("pk"), undone_at__isnull=False)
    return Q(Exists(back)) | Q(Exists(undone))


def count_reopenings(lefts: Mapping[int, int]) -> Counter[int]:
    """By invoice, of those with what is left of each in minor units. Three queries, none for none."""
    counts: Counter[int] = Counter()
    if not lefts:
        return counts
    undone = WriteOff.objects.filter(invoice__in=[*lefts], undone_at__isnull=False)
    counts.update(undone.values_list("invoice", flat=True))
    paid: dict[int, list[tuple[date, int]]] = defaultdict(list)
    rows = Payment.objects.filter(invoice__in=[*lefts]).order_by("pk")
    for invoice, day, amount in rows.values_list("invoice", "received_on", "amount"):
        paid[invoice].append((day, amount))
    notes: dict[int | None, list[tuple[date, int]]] = defaultdict(list)
    credited = Invoice.objects.issued().filter(original__in=[*paid], issued_on__isnull=False)
    for of, issued_on, total, prepaid in credited.values_list("original", "issued_on", "total", "prepaid"):
        notes[of].append((cast("date", issued_on), prepaid - total))
    for invoice, booked in paid.items():
        counts[invoice] += times_reopened(lefts[invoice], in_order(booked, notes[invoice]))
    return counts
