"""Whoever paid for a tenant is named nowhere in the database once its people are erased."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import Model

from billing.documents import job_users
from billing.invoicing import offboarding
from billing.models import (
    Archive,
    AutomaticTopUp,
    CheckoutSession,
    JobUser,
    TopUp,
    Wallet,
    WalletGrant,
    WalletScheme,
    WalletScope,
)
from billing.payments import automatic, checkout_sessions, top_ups
from billing.payments.checkout_sessions import ReturnUrls
from billing.rating import engine
from billing.rules.money import TOKENS
from billing.wallets import booking, wallet_terms
from portal.core.audit import acting_as
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Ownership
from tests.builders import LONG_AGO, a_cluster, a_job, a_person, a_plan, a_tenant, at, ingest
from tests.collecting import a_scenario
from tests.stories import prove

pytestmark = pytest.mark.django_db

TABLES = """
SELECT oid::regclass::text FROM pg_class
 WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
"""
BACK = ReturnUrls("https://tab.example/back/", "https://tab.example/")


def tables_naming(text: str) -> set[str]:
    """Every table of which some row has the text in any column."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        naming = set()
        for (table,) in cursor.fetchall():
            cursor.execute(
                f"SELECT EXISTS (SELECT FROM {table} t WHERE to_jsonb(t)::text ILIKE %s)", [f"%{text}%"]
            )
            if cursor.fetchone()[0]:
                naming.add(table)
    return naming


def test_case_086_who_opened_pages_to_pay_on_and_bought_credit_is_erased_from_rows_and_history() -> None:
    with a_scenario() as scenario:
        lab, now = scenario.lab, scenario.now
        lab.email = "ann@vision.example"
        lab.save()
        a_person("ann@vision.example", lab)
        wallet_terms.set_scheme(
            tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        wallet = Wallet.objects.get()
        by: dict[str, Any] = {"gateway": scenario.gateway, "who": "ann@vision.example", "moment": now}
        with acting_as("ann@vision.example", through="page /t/vision-lab/"):
            checkout_sessions.open_card_page(tenant=lab, back=BACK, **by)
            scenario.save_card()
            top_ups.charge_top_up(wallet=wallet, amount=5000, key=uuid4(), back=BACK, **by)
            automatic.set_rule(
                wallet=wallet, active=True, below=1000, amount=2000, most=9000, by=by["who"], moment=now
            )
            automatic.turn_off(wallet=wallet, by=by["who"], moment=now)
        assert {
            "billing_checkoutsession",
            "billing_topup",
            "billing_automatictopup",
            "billing_walletgrant",
            "audit_entry",
        } <= (tables_naming("ann@vision"))
        Archive.objects.create(tenant=lab, at=now, by="Op", reason="Contract ended")

        offboarding.erase_tenant(tenant=lab, moment=now)

        assert tables_naming("ann@vision") == set()
        columns: list[tuple[type[Model], str]] = [
            (CheckoutSession, "requested_by"), (TopUp, "requested_by"), (AutomaticTopUp, "set_by"),
            (WalletGrant, "granted_by"),
        ]  # fmt: skip
        for rows, column in columns:
            assert set(rows._default_manager.values_list(column, flat=True)) == {"an erased person"}
        assert ("requested_by", None, "(erased)") in AuditEntry.objects.of_table(TopUp).earliest("pk").changes
        assert scenario.stripe.violations == []


def test_what_a_page_to_pay_on_is_looked_at_is_no_part_of_the_history() -> None:
    link = CheckoutSession.objects.create(
        tenant=a_tenant("vision-lab"), created_at=at("2026-03-01"), requested_by="ann"
    )
    CheckoutSession.objects.update(checked_at=at("2026-03-02"), returns=3)
    assert [entry.operation for entry in AuditEntry.objects.of(link)] == ["insert"]


def test_a_user_of_the_scheduler_is_named_nowhere_and_keeps_the_wallet() -> None:
    cluster = a_cluster()
    prices: list[Any] = [("gpu-hour", {}, "0.5", LONG_AGO)]
    plan = a_plan("tokens", TOKENS, prices=prices, settles="wallet")
    tenant = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    WalletScheme.objects.create(tenant=tenant, scope="user", unit=TOKENS, overdraft=0, since=at("2026-03-01"))
    ingest(cluster, a_job(user="zoe.hopper", gpus=8, started="2026-03-02 10:00", ended="2026-03-02 15:00"))
    booking.book(tenant=tenant, moment=at("2026-04-01"))
    assert {str(wallet): wallet.balance for wallet in Wallet.objects.all()} == {"zoe.hopper": -20_000_000}
    job_users.erase_users(tenant)
    assert tables_naming("zoe.hopper") == set()

    Ownership.objects.update(since=at("2026-03-03"))  # it was somebody else's job
    engine.rate_tenants([tenant])
    booking.book(tenant=tenant, moment=at("2026-04-01"))
    erased = f"erased user {JobUser.objects.get().pk}"
    assert {str(wallet): wallet.balance for wallet in Wallet.objects.all()} == {erased: 0}
    prove()
