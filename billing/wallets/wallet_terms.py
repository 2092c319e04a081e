"""How a tenant's wallets are opened and filled: the only way in which schemes and their rules come about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from billing.models import DebtTerms, QuotaAction, QuotaChange
from billing.models.wallets import (
    PAYS_FIRST,
    Accrual,
    CreditsGo,
    GrantEvery,
    GrantRule,
    Wallet,
    WalletScheme,
    WalletScope,
)
from billing.rules.money import TOKENS, is_currency
from billing.rules.quotas import GRACE, LONGEST_GRACE, SHORTEST_GRACE
from billing.wallets.booking import Owner, wallet_of
from billing.wallets.entries import WalletError, pays_first
from portal.core.tenants.models import Project, Tenant
from portal.excerpt import quoted

OF_DEBTS = (QuotaAction.HOLD_JOBS, QuotaAction.END_JOBS)
WHOLE = 100
"""Percent of a cluster: its demand is never above that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a scheme; amounts in smallest units of its unit."""

    name: str
    amount: int
    every: GrantEvery
    begins_at: datetime
    ends_at: datetime | None = None
    cap: int | None = None
    priority: int = PAYS_FIRST
    lasts_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """What becomes of the jobs of whoever's wallet is below zero, until it has `free_at`, in smallest units."""

    action: QuotaAction
    demand_above: int | None = None  # percent of a cluster's GPUs; None: always
    grace_minutes: int | None = None
    free_at: int = 0
    watch: bool = True


@transaction.atomic
def set_debt(*, scheme: WalletScheme, debt: Debt | None) -> None:
    """Have a debt of the scheme's wallets do that, with the next pass over quotas; None: nothing. Again: no change.

    Raises WalletError for a grace that is too short or too long, and for one of jobs that are not ended.
    """
    row = DebtTerms.objects.filter(scheme=scheme).first()
    if debt is None:
        if row is not None:
            row.delete()
            QuotaChange.objects.create(tenant_id=scheme.tenant_id)
        return
    ends = debt.action == QuotaAction.END_JOBS
    if debt.action not in OF_DEBTS or (debt.grace_minutes is not None and not ends):
        raise WalletError("debt-action")
    minutes = None
    if ends:
        minutes = GRACE if debt.grace_minutes is None else debt.grace_minutes
        if not SHORTEST_GRACE <= minutes <= LONGEST_GRACE:
            raise WalletError("debt-grace", least=SHORTEST_GRACE, most=LONGEST_GRACE)
    if debt.free_at < 0 or not 0 <= (debt.demand_above or 0) < WHOLE:
        raise WalletError("debt-range")
    columns = {name: getattr(debt, name) for name in Debt.__dataclass_fields__} | {"grace_minutes": minutes}
    before = row or DebtTerms(scheme=scheme)
    if row is None or any(getattr(before, name) != value for name, value in columns.items()):
        for name, value in columns.items():
            setattr(before, name, value)
        before.save()
        QuotaChange.objects.create(tenant_id=scheme.tenant_id)


@transaction.atomic
def set_scheme(
    *,
    tenant: Tenant,
    unit: str,
    scope: WalletScope,
    overdraft: int,
    since: datetime,
    credits_go: CreditsGo = CreditsGo.WALLET,
) -> WalletScheme:
    """The tenant's scheme for that unit, made or brought to this; asked again, nothing changes.

    Wallets whose owners are known are opened: the tenant's, its projects'; a user's with its first use. Raises
    WalletError for a unit that is none, for another scope or beginning once wallets are open, and for wallets of
    projects or users where a plan of the tenant has its own wallet pay invoices first.
    """
    if not is_currency(unit) and unit != TOKENS:
        raise WalletError("wallet-unit-unknown", unit=quoted(unit), tokens=TOKENS)
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    scheme = WalletScheme.objects.filter(tenant=tenant, unit=unit).first()
    if scheme is None:
        scheme = WalletScheme(tenant=tenant, unit=unit)
    elif (scheme.scope, scheme.since) != (scope, since) and Wallet.objects.filter(scheme=scheme).exists():
        raise WalletError("wallet-scope-fixed", unit=unit, scope=scheme.scope, since=scheme.since)
    _write(scheme, {"scope": scope, "overdraft": overdraft, "since": since, "credits": credits_go})
    if scope != WalletScope.TENANT and pays_first(tenant.pk, unit):
        raise WalletError("wallet-pays-invoices-first", tenant=tenant.slug, unit=unit)
    open_wallets(scheme)
    return scheme


@transaction.atomic
def set_rule(*, scheme: WalletScheme, rule: Rule) -> GrantRule:
    """The scheme's rule of that name, made or brought to this; asked again, nothing changes.

    Of a rule that has given something only the end can move, to after what was given: other terms are another
    rule. Raises WalletError otherwise.
    """
    scheme = WalletScheme.objects.select_for_update(no_key=True).get(pk=scheme.pk)
    existing = GrantRule.objects.filter(scheme=scheme, name=rule.name).first()
    row = existing or GrantRule(scheme=scheme, name=rule.name)
    columns = {name: getattr(rule, name) for name in _TERMS}
    accrued = Accrual.objects.filter(rule=row).order_by("-through").first() if existing else None
    if accrued is not None:
        if any(getattr(row, name) != value for name, value in columns.items()):
            raise WalletError("grant-rule-used", rule=quoted(rule.name))
        if rule.ends_at is not None and rule.ends_at <= accrued.through:
            raise WalletError("grant-rule-ended-too-early", rule=quoted(rule.name), through=accrued.through)
    _write(row, columns | {"ends_at": rule.ends_at})
    return row


def open_wallets(scheme: WalletScheme) -> None:
    """Open the wallets whose owners need no usage to be known."""
    if scheme.scope == WalletScope.TENANT:
        wallet_of(scheme, Owner(None, ""))
    elif scheme.scope == WalletScope.PROJECT:
        for project in Project.objects.filter(tenant=scheme.tenant_id).order_by("pk"):
            wallet_of(scheme, Owner(project.pk, ""))


_TERMS = ("amount", "every", "begins_at", "cap", "priority", "lasts_days")


def _write(row: WalletScheme | GrantRule, columns: Mapping[str, object]) -> None:
    if not row.pk or any(getattr(row, name) != value for name, value in columns.items()):
        for name, value in columns.items():
            setattr(row, name, value)
        row.save()
