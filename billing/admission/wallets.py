"""What a job would need of the wallets that pay for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from django.db.models import Q

from billing.admission.cost import JobCost, longest_that_fits
from billing.models import Quota, QuotaMeasure, Wallet, WalletHold
from billing.rules.money import Money
from billing.wallets.booking import owner_of
from billing.wallets.reservation_holds import hold_key
from billing.wallets.wallet_holds import available
from portal.core.tenants.models import Ownership


@dataclass(frozen=True, slots=True)
class WalletNeed:
    """What the job would use of one wallet until its time limit, and what may still be spent, in smallest units.

    `longest`: as of a quota's need.
    """

    wallet: Wallet
    amount: int
    free: int
    longest: int | None

    @property
    def fits(self) -> bool:
        return self.amount <= self.free

    def text(self, amount: int) -> str:
        """For programs: in whole units."""
        return Money.from_minor(amount, self.wallet.unit).text


def list_paying(owner: Ownership, user: str) -> list[Wallet]:
    """The wallets that pay for jobs of the user in the account, by unit; one that was never opened is none yet."""
    theirs = Q(project=None) | Q(project=owner.project_id), Q(user__in={"", user})
    rows = Wallet.objects.filter(*theirs, scheme__tenant=owner.tenant_id)
    return [
        row
        for row in rows.select_related("scheme", "tenant", "project").order_by("scheme__unit", "pk")
        if (row.project_id, row.user) == owner_of(row.scheme, owner.project_id, user)
    ]


def list_wallets(
    owner: Ownership, cost: JobCost, user: str, seconds: int, now: datetime, *, besides: int
) -> Sequence[WalletNeed]:
    """Of each wallet that would pay, as it was booked last; one that was never opened has nothing to say yet."""
    counting = {}
    for wallet in list_paying(owner, user):
        # What wallets pay is what a quota of their credits counts.
        counted = Quota(tenant=owner.tenant, measure=QuotaMeasure.CREDITS, unit=wallet.unit)
        if exact := cost.of(counted, seconds):
            counting[wallet] = counted, exact
    left = _load_left(list(counting), owner, now, besides) if counting else {}
    needs = []
    for wallet, (counted, exact) in counting.items():
        amount, free = Money.from_minor(1, wallet.unit).amount, left[wallet.pk]
        needed, longest = ceil(exact / amount), None
        if needed > free:
            longest = longest_that_fits(cost, counted, seconds, free * amount) if free > 0 else 0
        needs.append(WalletNeed(wallet, needed, free, longest))
    return needs


def _load_left(wallets: Sequence[Wallet], owner: Ownership, now: datetime, besides: int) -> Mapping[int, int]:
    """By wallet what may still be spent, with what that reservation holds. One query, one more with a reservation."""
    left = available(wallets, day=now.astimezone(owner.tenant.zone).date())
    if besides:
        holds = WalletHold.objects.filter(wallet__in=wallets, key=hold_key(besides), released_at=None)
        for wallet, amount in holds.values_list("wallet", "amount"):
            left[wallet] += amount
    return left
