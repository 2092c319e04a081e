"""Who is suspended: begun once per crossing, and ended when nothing that is owed demands it any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from billing.catalog.tenant_lock import lock
from billing.dunning import notices, overdue_invoices
from billing.dunning.overdue_invoices import OverdueInvoice
from billing.models import BlockState, Invoice, NoticeKind, SuspendedAccount, Suspension
from billing.receivables import settlement
from billing.receivables.dunning_policies import Policies
from billing.rules.dunning_defaults import suspended_from
from clusters.models import Account, AccountBlock
from portal.core.tenants.models import Ownership, Tenant

AT_ONCE = 200
BLOCKING = (BlockState.REQUESTED, BlockState.BLOCKED)
GONE = (BlockState.LIFTING, BlockState.LIFTED)


def is_suspension_due(late: OverdueInvoice, policies: Policies) -> bool:
    """Whether the invoice has its tenant suspended, by its policy and by when that was announced."""
    if late.pause_reason:
        return False
    policy = policies.of(late.tenant, late.due_on)
    day = suspended_from(policy, due_on=late.due_on, announced_on=late.announced_on)
    return day is not None and day <= late.today


def begin_suspensions(late: Iterable[OverdueInvoice], policies: Policies, *, moment: datetime) -> int:
    """Suspend tenants that owe too long; how many. Of those that are suspended already, nothing."""
    by_tenant: dict[int, OverdueInvoice] = {}
    for invoice in late:
        if not invoice.suspended and invoice.tenant not in by_tenant and is_suspension_due(invoice, policies):
            by_tenant[invoice.tenant] = invoice
    return sum(_begin(invoice, moment) for invoice in list(by_tenant.values())[:AT_ONCE])


@transaction.atomic
def _begin(late: OverdueInvoice, moment: datetime) -> bool:
    tenant = lock(Tenant(pk=late.tenant))
    invoice = (
        Invoice.objects.select_related("tenant").select_for_update(of=("self",), no_key=True).get(pk=late.pk)
    )
    due = settlement.load_balance(invoice=invoice, on=late.today).due.minor
    is_suspended = Suspension.objects.filter(tenant=tenant, ended_at=None).exists()
    if is_suspended or due <= 0 or overdue_invoices.pause_reason(invoice=invoice, moment=moment):
        return False
    row = Suspension.objects.create(tenant=tenant, invoice=invoice, began_at=moment)
    _request_blocks(row, {account for _, account in _load_owned_accounts([row.tenant_id], moment)}, moment)
    return True


def follow_owners(*, moment: datetime) -> None:
    """Accounts that a suspended tenant was given since, or again, are blocked too; those that it gave away are not any
    more, nor what is left of a suspension that is over. Where nothing changed, the same few queries for all."""
    _lift(SuspendedAccount.objects.filter(suspension__ended_at__isnull=False), moment)
    suspended = dict(Suspension.objects.filter(ended_at=None).values_list("tenant", "pk"))
    if not suspended:
        return
    owned: dict[int, set[int]] = defaultdict(set)
    for tenant, account in _load_owned_accounts(suspended, moment):
        owned[suspended[tenant]].add(account)
    blocked: dict[int, set[int]] = defaultdict(set)
    rows = SuspendedAccount.objects.filter(suspension__in=suspended.values(), state__in=BLOCKING)
    for suspension, account in rows.values_list("suspension", "account"):
        blocked[suspension].add(account)
    for pk in suspended.values():
        if owned[pk] != blocked[pk]:
            _follow_one(pk, moment)


@transaction.atomic
def _follow_one(pk: int, moment: datetime) -> None:
    """Under the suspension's lock, so that none is asked for that ends meanwhile: nothing would lift it again."""
    row = Suspension.objects.select_for_update().filter(pk=pk, ended_at=None).first()
    if row is None:
        return
    owned = {account for _, account in _load_owned_accounts([row.tenant_id], moment)}
    _request_blocks(row, owned, moment)
    back = row.accounts.filter(account__in=owned, state__in=GONE)
    back.update(state=BlockState.REQUESTED, next_at=moment, tries=0, error="")
    _lift(row.accounts.exclude(account__in=owned), moment)


def _load_owned_accounts(tenants: Iterable[int], moment: datetime) -> Iterable[tuple[int, int]]:
    """Each tenant with an account that it owns."""
    rows = Ownership.objects.filter(Q(until=None) | Q(until__gt=moment), tenant__in=[*tenants])
    return rows.filter(Q(since=None) | Q(since__lte=moment)).values_list("tenant", "account")


def _request_blocks(row: Suspension, accounts: Iterable[int], moment: datetime) -> None:
    SuspendedAccount.objects.bulk_create(
        (
            SuspendedAccount(suspension=row, tenant_id=row.tenant_id, account_id=account, next_at=moment)
            for account in sorted(accounts)
        ),
        ignore_conflicts=True,
    )


def _lift(rows: QuerySet[SuspendedAccount], moment: datetime) -> None:
    rows.filter(state__in=BLOCKING).update(state=BlockState.LIFTING, next_at=moment, tries=0, error="")


def end_suspensions(late: Iterable[OverdueInvoice], policies: Policies, *, moment: datetime) -> int:
    """End suspensions that nothing demands any more, since it was paid, credited, given up, paused or is disputed."""
    demanded = {invoice.tenant for invoice in late if is_suspension_due(invoice, policies)}
    rows = Suspension.objects.filter(ended_at=None).exclude(tenant__in=demanded)
    return sum(_end(row.pk, moment) for row in rows[:AT_ONCE])


@transaction.atomic
def _end(pk: int, moment: datetime) -> bool:
    row = Suspension.objects.select_for_update().filter(pk=pk, ended_at=None).first()
    if row is None:
        return False
    row.ended_at, row.end_reason = moment, "Nothing that is owed demands it any more."
    row.save()
    _lift(SuspendedAccount.objects.filter(suspension=row), moment)
    return True


def notify_tenants(*, moment: datetime) -> None:
    """Write to whoever was blocked, and whoever is not any more, each once. Three queries where all were."""
    policies = Policies()
    blocked = SuspendedAccount.objects.filter(suspension=OuterRef("pk"), state=BlockState.BLOCKED)
    was_notified, restored = (
        notices.is_suspension_announced(NoticeKind.SUSPENDED),
        notices.is_suspension_announced(NoticeKind.RESTORED),
    )
    begun = Suspension.objects.filter(Exists(blocked), ~was_notified, ended_at=None)
    for row in begun.select_related("invoice"):
        notices.make_suspension_notice(row, NoticeKind.SUSPENDED, policies, moment=moment)
    left = SuspendedAccount.objects.filter(suspension=OuterRef("pk"), state=BlockState.LIFTING)
    over = Suspension.objects.filter(
        ~Exists(left), was_notified, ~restored, ended_at__gte=moment - notices.RECENT
    )
    for row in over.select_related("invoice"):
        notices.make_suspension_notice(
            row, NoticeKind.RESTORED, policies, moment=moment, blocked=_still_blocked(row)
        )


def _still_blocked(row: Suspension) -> list[str]:
    """Accounts of the suspension that are blocked for something else."""
    accounts = Account.objects.filter(pk__in=row.accounts.values("account"))
    blocks = AccountBlock.objects.filter(
        cluster=OuterRef("cluster"), account=OuterRef("name"), user="", ended_at=None
    )
    return list(accounts.filter(Exists(blocks)).order_by("name").values_list("name", flat=True))
