"""What a site holds beside usage and bills, so that none of its pages is looked at without anything on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.test import Client

from bench import jobs
from billing.models import Invoice, QuotaEvery, QuotaMeasure, WalletScope
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from billing.rating import ingest
from billing.tasks import render_document
from billing.wallets import wallet_terms
from clusters.connectors.base import BadRow, Reading, UsageFact
from clusters.models import Cluster
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Membership, Role, Tenant, User

NOBODYS, BAD_ROWS = 400, 300  # jobs of accounts that no tenant has, and rows that cannot be read
ACCOUNTS = 20  # that nobody has


@dataclass(frozen=True)
class People:
    """Who looks: an owner of the tenants, and an operator."""

    owner: User
    operator: User


def settle(tenants: list[Tenant], *, since: datetime, moment: datetime) -> People:
    """Give each of these tenants a wallet and a budget from `since` on, and the site what waits for an operator.

    What workers do after a close is done for the last invoices of these tenants; the rest counts as done.
    """
    with transaction.atomic():
        OutboxMessage.objects.filter(done_at=None).update(done_at=Now())
    for tenant in tenants:
        invoice = Invoice.objects.filter(tenant=tenant).latest("period_start")
        render_document(invoice_id=invoice.pk)
        wallet_terms.set_scheme(tenant=tenant, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=since)
        terms = QuotaTerms(measure=QuotaMeasure.MONEY, amount=Decimal(1_000_000), every=QuotaEvery.YEAR)
        quotas.set_quota(tenant=tenant, name="year", terms=terms, by=Setter.OPERATOR, moment=moment)
    _waits_for_an_operator(int(since.timestamp()), moment)
    outbox.drain()
    owner = User.objects.create_user("ann@lab.example")
    Membership.objects.bulk_create(
        Membership(user=owner, tenant=tenant, role=Role.OWNER, scheduler_users=[user_of(tenant)])
        for tenant in tenants
    )
    return People(owner, User.objects.create_superuser("op@lab.example"))


def user_of(tenant: Tenant) -> str:
    """One of its people, as `jobs` names them."""
    return f"user{int(tenant.slug.removeprefix('lab')) * jobs.USERS:05d}"


def cookie_of(person: User) -> str:
    """Of their session."""
    client = Client()
    client.force_login(person)
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}"


def _waits_for_an_operator(start: int, moment: datetime) -> None:
    """Jobs of accounts that nobody has, and rows that are no usage."""
    facts = [
        UsageFact(
            source_key=f"nobody-{number}@{start}",
            job_id=f"nobody-{number}",
            account=f"nobody{number % ACCOUNTS}",
            user="guest",
            gpus=1,
            gpu_model=jobs.MODELS[0],
            submitted=start,
            started=start + number,
            ended=start + number + 3600,
            state="COMPLETED",
        )
        for number in range(NOBODYS)
    ]
    rows = [BadRow(code="truncated", raw=f"{number}|lab|") for number in range(BAD_ROWS)]
    cluster = Cluster.objects.get()
    ingest.ingest(cluster=cluster, rows=[*facts, *rows], reading=Reading(), source="file", moment=moment)
