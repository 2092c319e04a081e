"""What tenants owe and what is owed to them, in all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, Sum

from billing.models import Invoice
from billing.rules.money import Money


@dataclass(frozen=True, slots=True)
class ReceivableTotal:
    """In one currency."""

    overdue: Money  # of what was due before today
    overdue_invoices: int
    overdue_tenants: int
    owed_back: Money  # of what more was paid of than is owed for it
    owed_back_invoices: int


def total_receivables(*, moment: datetime) -> list[ReceivableTotal]:
    """By currency. One query."""
    late = Q(due_on__lt=moment.date(), remainder__left__gt=0)
    back = Q(remainder__left__lt=0)
    totals = (
        Invoice.objects.to_settle()
        .order_by()
        .values("currency")
        .annotate(
            overdue=Sum("remainder__left", filter=late, default=0),
            overdue_invoices=Count("pk", filter=late),
            overdue_tenants=Count("tenant", filter=late, distinct=True),
            owed_back=Sum("remainder__left", filter=back, default=0),
            owed_back_invoices=Count("pk", filter=back),
        )
    )
    return [
        ReceivableTotal(
            Money.from_minor(int(row["overdue"]), row["currency"]),
            row["overdue_invoices"],
            row["overdue_tenants"],
            Money.from_minor(-int(row["owed_back"]), row["currency"]),
            row["owed_back_invoices"],
        )
        for row in totals.order_by("currency")
    ]
