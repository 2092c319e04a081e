"""Budgets of wallets below zero: a row while the debt lasts, where the wallet's terms say what it does to jobs.

A row comes with the first pass that sees the debt, counts what the wallet has too little, and ends with it. What it
does is what every budget does: waiting jobs are held, running ones end after a grace with two warnings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.db.models import F, Q
from django.utils.text import slugify

from billing.models import (
    DebtTerms,
    Quota,
    QuotaAction,
    QuotaEvery,
    QuotaMeasure,
    QuotaSetBy,
    Wallet,
    WalletBooking,
    WalletScope,
)
from billing.models.quota_terms import LONGEST_NAME
from billing.quotas.quotas import OF_DEBTS, list_quotas, write_quota
from billing.quotas.terms import QuotaTerms
from billing.rules.money import Money
from billing.wallets.booking import book
from clusters.gpus_in_use import load_demand
from portal.core.audit import acting_as
from portal.core.tenants.models import Ownership, Tenant

MARGIN = 5
"""Percent of a cluster's GPUs below its mark at which demand is low again: else each end of a job frees somebody."""


def follow_debts(tenants: Collection[int], *, moment: datetime, confined: Collection[int] = ()) -> None:
    """Have a budget for each wallet in debt whose terms act, and no other; within the pass. Again, nothing changes.

    `confined`: wallets that are taken to have been in debt, until they have what ends it. Of two at once one waits for
    the other, by the rows of the terms. Two queries where no tenant has such terms.
    """
    locked = DebtTerms.objects.select_for_update(of=("self",), no_key=True)
    terms = {row.scheme_id: row for row in locked.filter(scheme__tenant__in=tenants).order_by("pk")}
    rows = {row.wallet_id: row for row in list_quotas().filter(tenant__in=tenants, set_by=QuotaSetBy.WALLET)}
    listed = Wallet.objects.filter(scheme__in=terms).select_related("tenant", "project", "scheme")
    begun = Q(balance__lt=0) | Q(pk__in=[*rows, *confined], balance__lt=F("scheme__debt__free_at"))
    # A job without a user is nobody's to end: such a wallet's debt is only seen.
    named = listed.filter(begun).exclude(scheme__scope=WalletScope.USER, user="")
    in_debt = {wallet.pk: wallet for wallet in named} if terms else {}
    if not rows and not in_debt:
        return
    with acting_as("terms of wallets"):
        for pk, row in rows.items():
            if pk not in in_debt:
                row.ended_at = moment
                row.save(update_fields=["ended_at"])
        for pk, wallet in sorted(in_debt.items()):
            values = _columns(wallet, terms[wallet.scheme_id])
            write_quota(rows.get(pk), tenant=wallet.tenant, name=_name(wallet), values=values, moment=moment)


def settle_debts(tenants: Collection[int], *, moment: datetime) -> None:
    """Book what is rated and not booked yet, of tenants with debts that act: what just became known counts in full."""
    due = WalletBooking.objects.filter(
        tenant__in=Quota.objects.in_force().filter(tenant__in=tenants, wallet__isnull=False).values("tenant"),
        due=True,
    )
    for tenant in Tenant.objects.filter(pk__in=due.values("pk")).order_by("pk"):
        book(tenant=tenant, moment=moment)
    follow_debts(tenants, moment=moment)


def load_debts(quotas: Sequence[Quota]) -> dict[int, Fraction]:
    """By quota of a wallet, in its unit, what the wallet has too little, as it is booked.

    One query, none without such.
    """
    wallets = {quota.wallet_id: quota for quota in quotas if quota.wallet_id is not None}
    if not wallets:
        return {}
    rows = Wallet.objects.filter(pk__in=wallets).values_list("pk", "unit", "balance", "scheme__debt__free_at")
    return {
        wallets[pk].pk: Money.from_minor(max(0, (free_at or 0) - balance), unit).amount
        for pk, unit, balance, free_at in rows
    }


def load_use_of_clusters(
    quotas: Sequence[Quota], accounts: Mapping[int, Sequence[Ownership]]
) -> Mapping[int, Fraction]:
    """By cluster how much of it is in use, where a quota looks at that. Two queries, none without such."""
    tenants = {quota.tenant_id for quota in quotas if quota.demand_above is not None}
    clusters = {row.account.cluster_id for tenant in tenants for row in accounts.get(tenant, ())}
    return load_demand(clusters) if clusters else {}


def is_in_demand(quota: Quota, in_use: Fraction | None, *, stands: bool) -> bool:
    """Whether the quota acts on a cluster of which so many percent are in use; None: nobody knows, and nothing is done.

    What `stands` is let go MARGIN below.
    """
    if quota.demand_above is None:
        return True
    return in_use is not None and in_use > quota.demand_above - (MARGIN if stands else 0)


def _columns(wallet: Wallet, terms: DebtTerms) -> dict[str, Any]:
    """By column what the budget is to be: of everything that the wallet pays for."""
    terms_of_quota = QuotaTerms(
        measure=QuotaMeasure.CREDITS,
        amount=Decimal(0),
        every=QuotaEvery.ROLLING,
        hours=1,
        unit=wallet.unit,
        project=wallet.project,
        user=wallet.user,
        thresholds=(),
        action=QuotaAction(terms.action),
        grace_minutes=terms.grace_minutes,
        ends_older=terms.action == QuotaAction.END_JOBS,  # they made the debt
        watch=terms.watch,
    )
    values: dict[str, Any] = {name: getattr(terms_of_quota, name) for name in QuotaTerms.__dataclass_fields__}
    values |= {name: list(values[name]) for name in ("thresholds", "forecasts", "recipients")}
    return values | {
        "set_by": QuotaSetBy.WALLET,
        "wallet_id": wallet.pk,
        "demand_above": terms.demand_above,
    }


def _name(wallet: Wallet) -> str:
    """`debt-ben-12`: the number tells apart who would be written the same."""
    number = f"-{wallet.pk}"
    whose = slugify(str(wallet))[: LONGEST_NAME - len(OF_DEBTS) - len(number)].strip("-_")
    return f"{OF_DEBTS}{whose}{number}" if whose else f"{OF_DEBTS}{wallet.pk}"
