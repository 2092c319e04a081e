"""Which plan a tenant is on: coming to one, leaving it, and taking back a change that is still to come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Q

from billing.catalog import billing_periods, third_party_payers
from billing.catalog.plans import PlanError
from billing.models import (
    Archive,
    Plan,
    RatedJob,
    RatedUsage,
    Settles,
    Subscription,
    WalletScheme,
    WalletScope,
)
from billing.models.wallets import Wallet
from billing.rules.money import Money
from portal.core.tenants.models import Tenant

FIRST_YEAR, LAST_YEAR = 1970, 9998  # of periods: the last one ends before the calendar does


@transaction.atomic
def subscribe(*, tenant: Tenant, plan: Plan, since: datetime) -> Subscription:
    """Put the tenant on the plan from that instant on; the plan it is on ends there.

    A tenant that is on the plan at that instant stays as it is; one that came to it later has come
    earlier now. Raises PlanError where it goes to another plan after `since`, for a change of currency
    inside a billing period, with something left in a wallet of the old one, or to another one than that of who pays
    for the tenant or of whom it pays for, and for a tenant that has left.
    """
    if not FIRST_YEAR <= since.year <= LAST_YEAR:
        raise PlanError(
            "subscription-year",
            tenant=tenant.slug,
            plan=plan,
            year=since.year,
            first=FIRST_YEAR,
            last=LAST_YEAR,
        )
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    _refuse_archived(tenant, plan)
    subscriptions = tenant.subscriptions.select_related("plan").order_by("since")
    following = subscriptions.filter(since__gt=since).first()
    present = subscriptions.filter(Q(until=None) | Q(until__gt=since), since__lte=since).first()
    if present is not None and present.plan == plan:
        return present
    if following is not None and (following.plan != plan or present is not None):
        raise PlanError(
            "subscription-follows", tenant=tenant.slug, plan=following.plan, since=following.since, other=plan
        )
    _refuse_other_wallets(tenant, plan)
    if present is not None:
        _refuse_mixed_currencies(tenant, present.plan, plan, since)
    subscription = _placed(tenant, plan, since, present, following)
    third_party_payers.refuse_other_currency(tenant)
    return subscription


def _placed(
    tenant: Tenant, plan: Plan, since: datetime, present: Subscription | None, following: Subscription | None
) -> Subscription:
    if following is not None:
        following.since = since
        following.save(update_fields=["since"])
        return following
    if present is not None and present.since == since:
        present.replaced_plans = sorted({*present.replaced_plans, present.plan_id})
        present.plan = plan
        present.save(update_fields=["plan", "replaced_plans"])
        return present
    if present is not None:
        present.until = since
        present.save(update_fields=["until"])
    return Subscription.objects.create(tenant=tenant, plan=plan, since=since)


@transaction.atomic
def unsubscribe(*, tenant: Tenant, at: datetime) -> None:
    """Have the tenant be on no plan from that instant on; asked again, nothing changes.

    What it uses afterwards is unpriced; rate its accounts again. Raises PlanError where it goes to
    another plan later: withdraw that first.
    """
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    later = tenant.subscriptions.filter(since__gte=at).select_related("plan").order_by("since").first()
    if later is not None:
        raise PlanError("subscription-planned", tenant=tenant.slug, plan=later.plan, since=later.since)
    present = tenant.subscriptions.filter(Q(until=None) | Q(until__gt=at), since__lt=at).first()
    if present is not None:
        present.until = at
        present.save(update_fields=["until"])


def _used_for_nothing(tenant: Tenant, since: int) -> bool:
    """Whether jobs without GPUs ran since that second: what a plan does not charge of them has no rated row."""
    jobs = RatedJob.objects.filter(tenant=tenant, gpus=0, started__isnull=False)
    return jobs.filter(Q(ended__gt=since) | Q(ended=None, seen_until__gt=since)).exists()


@transaction.atomic
def withdraw(*, subscription: Subscription) -> None:
    """Take back a change of plan that is still to come: the tenant stays on the plan that it was to leave.

    Raises PlanError where usage was rated by it: then another change ends it.
    """
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=subscription.tenant_id)
    rated = RatedUsage.objects.filter(
        tenant_id=tenant.pk,
        version_id__in=list(subscription.plan.versions.values_list("pk", flat=True)),
        service_to__gt=int(subscription.since.timestamp()),
        service_month__gte=subscription.since.astimezone(UTC).date().replace(day=1),  # others are not read
    )
    if rated.exists() or _used_for_nothing(tenant, int(subscription.since.timestamp())):
        raise PlanError("subscription-used", tenant=tenant.slug, plan=subscription.plan)
    before = tenant.subscriptions.filter(until=subscription.since).first()
    until = subscription.until
    subscription.delete()
    if before is not None:
        before.until = until
        before.save(update_fields=["until"])


@transaction.atomic
def set_phases(*, tenant: Tenant, phases: Sequence[tuple[Plan, datetime]]) -> None:
    """Have the tenant be on these plans, each from its instant until the next one's; asked again, nothing changes.

    What it was on before the first of them stays. Changes of plan after that which are not among them are withdrawn.
    Raises PlanError where usage was rated by one of those, and as `subscribe` does.
    """
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    begins = min(since for _, since in phases)
    subscriptions = tenant.subscriptions.filter(since__gte=begins).select_related("plan").order_by("since")
    rows = list(subscriptions)
    alike = 0
    for row, phase in zip(rows, phases, strict=False):
        if (row.plan, row.since) != phase:
            break
        alike += 1
    for row in reversed(rows[alike:]):
        if row.since > begins:
            withdraw(subscription=row)
    for plan, since in phases:
        subscribe(tenant=tenant, plan=plan, since=since)


def _refuse_archived(tenant: Tenant, plan: Plan) -> None:
    """What it would be charged from then on would be billed to nobody: its close is done, its people may be erased."""
    archive = Archive.objects.filter(tenant=tenant).first()
    if archive is not None:
        raise PlanError("subscription-of-archived", tenant=tenant.slug, at=archive.at, plan=plan)


def _refuse_other_wallets(tenant: Tenant, plan: Plan) -> None:
    others = WalletScheme.objects.filter(tenant=tenant, unit=plan.currency).exclude(scope=WalletScope.TENANT)
    if plan.settles == Settles.WALLET_FIRST and others.exists():
        raise PlanError(
            "subscription-wallets",
            plan=plan,
            tenant=tenant.slug,
            currency=plan.currency,
            scope=others[0].scope,
        )


def _refuse_mixed_currencies(tenant: Tenant, present: Plan, plan: Plan, since: datetime) -> None:
    if present.currency == plan.currency:
        return
    _refuse_open_wallet(tenant, present, plan)
    begins = billing_periods.beginning(tenant=tenant, moment=since)
    if begins != since:
        raise PlanError(
            "subscription-currency",
            tenant=tenant.slug,
            currency=present.currency,
            other=plan.currency,
            begins=begins,
        )


def _refuse_open_wallet(tenant: Tenant, present: Plan, plan: Plan) -> None:
    """What is prepaid in the old currency would pay for nothing any more, and a debt would stay."""
    wallets = Wallet.objects.filter(tenant=tenant, unit=present.currency).exclude(balance=0, held=0)
    wallet = wallets.order_by("pk").first()
    if wallet is not None:
        left = Money.from_minor(wallet.balance, wallet.unit).text
        raise PlanError(
            "subscription-wallet-unit",
            tenant=tenant.slug,
            unit=wallet.unit,
            left=left,
            currency=plan.currency,
        )
