"""The gateway's books beside ours, for the operator's pages: differences, runs, and what payouts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet, Sum

from billing.models import Difference, GatewayMovement, GatewayPayout, Reconciliation

OWN = Q(kind="payout")  # its own line, which takes it off the balance


@dataclass(frozen=True, slots=True)
class PayoutTotal:
    """What the lines of a payout come to, in the gateway's smallest units; its own line is not counted."""

    amount: int
    fee: int
    net: int
    lines: int
    untraced: int  # that lead to no payment of ours


def differences(*, resolved: bool, before: int | None, limit: int) -> tuple[list[Difference], int | None]:
    """The newest first, and what the next page begins behind."""
    rows = Difference.objects.filter(resolved_at__isnull=not resolved).select_related(
        "tenant", "invoice__tenant"
    )
    if before is not None:
        rows = rows.filter(pk__lt=before)
    page = list(rows.order_by("-pk")[: limit + 1])
    return page[:limit], page[limit - 1].pk if len(page) > limit else None


def open_by_kind() -> dict[str, int]:
    """How many differences of each kind are open."""
    rows = Difference.objects.filter(resolved_at=None).order_by().values_list("kind")
    return dict(rows.annotate(count=Count("pk")))


def runs(limit: int) -> list[Reconciliation]:
    """The newest runs of reconciliation first."""
    return list(Reconciliation.objects.order_by("-began_at", "-pk")[:limit])


def last_good() -> Reconciliation | None:
    """The newest run that compared anything."""
    return (
        Reconciliation.objects.filter(ended_at__isnull=False, error="").order_by("-began_at", "-pk").first()
    )


def payouts(*, before: str, limit: int) -> tuple[list[tuple[GatewayPayout, int]], str]:
    """The newest first, each with how many lines it is made of; and what the next page begins behind."""
    rows = GatewayPayout.objects.annotate(lines=Count("movements", filter=~Q(movements__kind="payout")))
    last = GatewayPayout.objects.filter(pk=before).first() if before else None
    if last is not None:
        rows = rows.filter(Q(created_at__lt=last.created_at) | Q(created_at=last.created_at, pk__lt=last.pk))
    page = list(rows.order_by("-created_at", "-pk")[: limit + 1])
    return [(row, row.lines) for row in page[:limit]], page[limit - 1].pk if len(page) > limit else ""


def lines(payout: GatewayPayout) -> QuerySet[GatewayMovement]:
    """What it is made of, oldest first, each with its payment, invoice and tenant where it leads to one."""
    rows = GatewayMovement.objects.filter(payout=payout).exclude(OWN)
    return rows.select_related("attempt__invoice", "attempt__tenant").order_by("created_at", "pk")


def total(payout: GatewayPayout) -> PayoutTotal:
    """What its lines come to, in smallest units of its currency. One query."""
    rows = GatewayMovement.objects.filter(payout=payout).exclude(OWN)
    sums = rows.aggregate(
        amount=Sum("amount"),
        fee=Sum("fee"),
        net=Sum("net"),
        lines=Count("pk"),
        untraced=Count("pk", filter=Q(attempt=None)),
    )
    names: Sequence[str] = ("amount", "fee", "net", "lines", "untraced")
    return PayoutTotal(*(int(sums[name] or 0) for name in names))
