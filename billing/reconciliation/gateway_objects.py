"""What the gateway has of a window of time, sorted into what is ours and what shares the account with us."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from billing.models import PaymentAttempt, PaymentDispute, PaymentRefund
from billing.payments import gateway_access
from billing.payments.gateways.base import (
    CallOutcome,
    Charge,
    Dispute,
    Gateway,
    GatewayError,
    Movement,
    Payout,
    Refund,
)

OWN_KINDS = ("payout", "topup", "transfer", "reserve")
"""What begins so moves money between the gateway and our bank, or within it: no payer is behind it."""
FEE_KINDS = frozenset({"stripe_fee", "network_cost", "application_fee", "tax_fee", "stripe_fx_fee"})
SLICE = 500


@dataclass(slots=True)
class There:
    """The gateway's books of a window; only what is ours, but for movements and payouts, which are whole."""

    charges: dict[str, Charge] = field(default_factory=dict)
    refunds: list[Refund] = field(default_factory=list)
    disputes: list[Dispute] = field(default_factory=list)
    movements: dict[str, Movement] = field(default_factory=dict)
    payouts: list[Payout] = field(default_factory=list)
    contents: dict[str, list[str]] = field(default_factory=dict)  # of itemised payouts, movements by id
    gone: set[str] = field(default_factory=set)  # charges of ours that the gateway does not know
    foreign: int = 0  # objects of something else that shares the account


def read(*, gateway: Gateway, since: datetime, until: datetime) -> There:
    """Raises GatewayError where something cannot be read: a comparison with half of the books tells nothing."""
    there = There()
    first, end = int(since.timestamp()), int(until.timestamp())
    others: set[str] = set()
    for charge in gateway.charges(since=first):
        if charge.created > end:
            continue
        if gateway_access.is_ours(charge.tags):
            there.charges[charge.id] = charge
        else:
            others.add(charge.id)
            there.foreign += 1
    _read_again(there, gateway, since, until)
    own = _OwnCharges(there, others, gateway)
    for refund in gateway.refunds(since=first):
        if refund.created <= end and own.has(refund.charge):
            there.refunds.append(refund)
    for dispute in gateway.disputes(since=first):
        if dispute.created <= end and own.has(dispute.charge):
            there.disputes.append(dispute)
    _read_money(there, gateway, first, end)
    return there


class _OwnCharges:
    """Which charges are ours: by the window, by our rows, and by asking for those that neither tells of."""

    def __init__(self, there: There, others: set[str], gateway: Gateway) -> None:
        self.there, self.others, self.gateway = there, others, gateway

    def has(self, charge: str) -> bool:
        ours = charge in self.there.charges or charge in self.there.gone
        if not ours and charge and charge not in self.others:
            ours = self._is_ours(charge)
        if not ours:
            self.there.foreign += 1
        return ours

    def _is_ours(self, charge: str) -> bool:
        row = _charge(self.gateway, charge)
        if row is None or not gateway_access.is_ours(row.tags):
            self.others.add(charge)
            return False
        self.there.charges[charge] = row
        return True


def _read_again(there: There, gateway: Gateway, since: datetime, until: datetime) -> None:
    """Charges, refunds and disputes that our rows of the window name and the list did not, one by one."""
    named = set(
        PaymentAttempt.objects.filter(external_id__isnull=False, created_at__gte=since, created_at__lte=until)
        .order_by()
        .values_list("external_id", flat=True)
    )
    for of, at in ((PaymentRefund, "created_at"), (PaymentDispute, "opened_at")):
        rows = of.objects.filter(**{f"{at}__gte": since, f"{at}__lte": until, "external_id__isnull": False})
        named |= set(rows.values_list("attempt__external_id", flat=True))
    for name in sorted(charge for charge in named if charge and charge not in there.charges):
        row = _charge(gateway, name)
        if row is None:
            there.gone.add(name)
        else:
            there.charges[name] = row


def _read_money(there: There, gateway: Gateway, first: int, end: int) -> None:
    for movement in gateway.movements(since=first):
        if movement.created <= end:
            there.movements[movement.id] = movement
    for payout in gateway.payouts(since=first):
        if payout.created > end:
            continue
        there.payouts.append(payout)
        if not payout.itemised:
            continue
        lines = list(gateway.movements(payout=payout.id))
        there.movements |= {line.id: line for line in lines}
        there.contents[payout.id] = [line.id for line in lines]


def _charge(gateway: Gateway, charge: str) -> Charge | None:
    try:
        return gateway.find_charge(charge)
    except GatewayError as error:
        if error.outcome is CallOutcome.REFUSED and error.code == "resource_missing":
            return None
        raise


def attempts_of(charges: Iterable[str]) -> dict[str, PaymentAttempt]:
    """Our rows of these charges, by the gateway's name; a query for each slice of them."""
    names = sorted({charge for charge in charges if charge})
    rows: dict[str, PaymentAttempt] = {}
    for start in range(0, len(names), SLICE):
        for row in PaymentAttempt.objects.filter(external_id__in=names[start : start + SLICE]).select_related(
            "invoice", "tenant", "top_up"
        ):
            rows[row.external_id or ""] = row
    return rows


def moment_of(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
