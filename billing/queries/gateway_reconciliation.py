"""The gateway's books beside ours, for the operator's pages: differences, runs, and what payouts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet, Sum

from billing.models import Difference, GatewayMovement, GatewayPayout, Reconciliation
from portal.core import pagination
from portal.core.pagination import Page

OWN = Q(kind="payout")  # its own line, which takes it off the balance


@dataclass(frozen=True, slots=True)
class PayoutTotal:
    """What the lines of a payout come to, in the gateway's smallest units; its own line is not counted."""

    amount: int
    fee: int
    net: int
    lines: int
    untraced: int  # that lead to no payment of ours


def differences(*, resolved: bool, after: str, size: int) -> Page[Difference]:
    """The newest first, behind the cursor `after`."""
    rows = Difference.objects.filter(resolved_at__isnull=not resolved)
    return pagination.page(rows.select_related("tenant", "invoice__tenant"), "-id", after=after, size=size)


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


def payouts(*, after: str, size: int) -> tuple[list[tuple[GatewayPayout, int]], str]:
    """The newest first, each with how many lines it is made of; and the cursor of the next page."""
    page = pagination.page(GatewayPayout.objects.all(), "-created_at", "-id", after=after, size=size)
    made_of = (
        GatewayMovement.objects.filter(payout__in=page.rows).exclude(OWN).order_by().values_list("payout")
    )
    lines = dict(made_of.annotate(lines=Count("pk")))
    return [(row, lines.get(row.pk, 0)) for row in page.rows], page.next


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
