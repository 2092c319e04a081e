"""One tenant as its operator sees it: money, plan, accounts, people, wallets, invoices, quotas, blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.db.models import Q

from billing.models import (
    Archive,
    DunningPause,
    Quota,
    Subscription,
    Suspension,
    Wallet,
    WalletScheme,
    WalletScope,
)
from billing.queries import invoices
from billing.queries.invoices import ListedInvoice, Open, OwedBack
from billing.receivables import credit_balance, pauses
from billing.rules.money import TOKENS, Money
from clusters.models import AccountBlock
from portal.core.tenants.models import Membership, Ownership, Tenant, TenantNote

INVOICES = 12
ROWS = 100  # of accounts, people, wallets, quotas and notes each


@dataclass(frozen=True, slots=True)
class TenantOverview:
    """All lists are short; where there are more rows than ROWS, the first ones are told."""

    tenant: Tenant
    open: Open
    owed_back: OwedBack
    credit: list[Money]  # what was paid ahead, by currency
    subscriptions: Sequence[Subscription]  # by their beginning
    accounts: Sequence[Ownership]  # of now and later, by cluster and name
    people: Sequence[Membership]  # by address
    wallets: Sequence[Wallet]
    invoices: Sequence[ListedInvoice]  # the newest first
    has_buckets: bool  # its users have wallets of tokens
    quotas: Sequence[Quota]  # that have not ended
    suspension: Suspension | None  # by dunning
    blocks: dict[str, list[str]]  # accounts that are blocked now, by cluster
    pauses: Sequence[DunningPause]
    archive: Archive | None
    notes: Sequence[TenantNote]  # of operators, the newest first

    def plan_at(self, moment: datetime) -> Subscription | None:
        """What it is on then."""
        for row in self.subscriptions:
            if row.since <= moment and (row.until is None or moment < row.until):
                return row
        return None


def tenant_overview(tenant: Tenant, *, moment: datetime, on: date) -> TenantOverview:
    """Fifteen queries, whatever there is."""
    is_open, owed_back, _ = invoices.outstanding(tenant)
    accounts = list(
        Ownership.objects.filter(Q(until=None) | Q(until__gt=moment), tenant=tenant)
        .select_related("account__cluster", "project")
        .order_by("account__cluster__name", "account__name", "since")[:ROWS]
    )
    return TenantOverview(
        tenant=tenant,
        open=is_open,
        owed_back=owed_back,
        credit=[
            Money.from_minor(minor, currency)
            for (_tenant, currency), minor in sorted(credit_balance.list_balances([tenant.pk]).items())
            if minor
        ],
        subscriptions=list(
            Subscription.objects.filter(tenant=tenant).select_related("plan").order_by("since")
        ),
        accounts=accounts,
        people=list(
            Membership.objects.filter(tenant=tenant).select_related("user").order_by("user__email")[:ROWS]
        ),
        wallets=list(
            Wallet.objects.filter(tenant=tenant).select_related("project", "tenant").order_by("pk")[:ROWS]
        ),
        has_buckets=WalletScheme.objects.filter(tenant=tenant, unit=TOKENS, scope=WalletScope.USER).exists(),
        invoices=invoices.newest(tenant, on=on, size=INVOICES)[0],
        quotas=list(
            Quota.objects.filter(tenant=tenant, ended_at=None)
            .select_related("project")
            .order_by("name")[:ROWS]
        ),
        suspension=Suspension.objects.filter(tenant=tenant, ended_at=None).select_related("invoice").first(),
        blocks=_blocks(accounts),
        pauses=list(pauses.filter_active(on).filter(tenant=tenant).select_related("invoice")),
        archive=Archive.objects.filter(tenant=tenant).first(),
        notes=list(TenantNote.objects.filter(tenant=tenant).order_by("-created_at", "-pk")[:ROWS]),
    )


def _blocks(accounts: Sequence[Ownership]) -> dict[str, list[str]]:
    names = {row.account.name for row in accounts}
    own = {(row.account.cluster.name, row.account.name) for row in accounts}
    blocked: dict[str, list[str]] = {}
    rows = AccountBlock.objects.filter(account__in=names, user="", ended_at=None).order_by(
        "cluster__name", "account"
    )
    for cluster, account in rows.values_list("cluster__name", "account"):
        if (cluster, account) in own:
            blocked.setdefault(cluster, []).append(account)
    return blocked
