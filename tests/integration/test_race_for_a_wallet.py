"""Many at once on one wallet: the limit holds, each booking is done once, and the sums close."""

from __future__ import annotations

import pytest

from billing.models import GrantEvery, Wallet, WalletGrant, WalletScope
from billing.rules.money import TOKENS
from billing.wallets import booking, grants, wallet_holds, wallet_terms
from billing.wallets.entries import WalletError
from billing.wallets.wallet_terms import Rule
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.integration.test_race_for_the_same_rows import at_once
from tests.stories import closed, invoice_of, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

NOW = at("2026-03-02 18:00")
TOKEN = 10**6


def a_lab() -> Tenant:
    """100 tokens and 10 of overdraft in one wallet; a GPU-hour costs one."""
    plan = a_plan("tokens", TOKENS, prices=[("gpu-hour", {}, "1", LONG_AGO)], settles="wallet")
    tenant = a_tenant(plan=plan, accounts=[(a_cluster(), "vision")])
    scheme = wallet_terms.set_scheme(
        tenant=tenant, unit=TOKENS, scope=WalletScope.TENANT, overdraft=10 * TOKEN, since=at("2026-03-01")
    )
    rule = Rule(name="to begin with", amount=100 * TOKEN, every=GrantEvery.ONCE, begins_at=scheme.since)
    wallet_terms.set_rule(scheme=scheme, rule=rule)
    grants.tend(moment=NOW)
    return tenant


def test_case_067_twenty_connections_hold_no_more_than_there_is() -> None:
    a_lab()
    wallet = Wallet.objects.get()

    def hold(number: int) -> bool:
        try:
            wallet_holds.hold(wallet=wallet, amount=9 * TOKEN, key=f"job {number}", moment=NOW)
        except WalletError:
            return False
        return True

    results = at_once(*[lambda number=number: hold(number) for number in range(20)])
    assert sum(results) == 12  # of 110 that may be held
    wallet.refresh_from_db()
    assert wallet.held == 108 * TOKEN
    prove()


def test_case_067_what_happened_is_booked_in_full_while_others_hold_and_spend() -> None:
    tenant = a_lab()
    wallet = Wallet.objects.get()
    ingest(a_cluster(), *[a_job(gpus=8) for _ in range(20)])  # 160 tokens

    def book() -> bool:
        booking.book(tenant=tenant, moment=NOW)
        return True

    def spend() -> bool:
        try:
            wallet_holds.spend(wallet=wallet, amount=30 * TOKEN, moment=NOW, memo="A reservation")
        except WalletError:
            return False
        return True

    done = at_once(*[book] * 10, *[spend] * 10)
    bought = sum(done[10:])
    wallet.refresh_from_db()
    assert wallet.balance == (100 - 160 - 30 * bought) * TOKEN
    assert bought <= 3
    prove()


@pytest.mark.sample
def test_case_069_a_top_up_that_is_told_of_twenty_times_is_credited_once() -> None:
    a_lab()
    wallet = Wallet.objects.get()

    def top_up() -> int:
        grant = grants.grant(wallet=wallet, amount=50 * TOKEN, key="payment 7", who="webhook", moment=NOW)
        return grant.pk

    assert len(set(at_once(*[top_up] * 20))) == 1
    assert WalletGrant.objects.filter(key="payment 7").count() == 1
    wallet.refresh_from_db()
    assert wallet.balance == 150 * TOKEN
    prove()


def test_accruals_that_meet_give_each_grant_once() -> None:
    tenant = a_lab()
    scheme = tenant.wallet_schemes.get()
    rule = Rule(name="daily", amount=TOKEN, every=GrantEvery.DAY, begins_at=scheme.since)
    wallet_terms.set_rule(scheme=scheme, rule=rule)
    at_once(*[lambda: grants.tend(moment=at("2026-03-10"))] * 8)
    assert Wallet.objects.get().balance == 110 * TOKEN
    prove()


def test_case_067_two_closers_and_twenty_who_spend_draw_nothing_twice() -> None:
    """An invoice of 80.00 and 18 reservations of 10.00 each, out of a wallet with 100.00."""
    a_seller()
    plan = a_plan("prepaid", prices=[("gpu-hour", {}, "2.00", LONG_AGO)], settles="wallet-first")
    cluster = a_cluster(complete_through="2026-06-01")
    tenant = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    wallet_terms.set_scheme(
        tenant=tenant, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = Wallet.objects.get()
    grants.grant(wallet=wallet, amount=100_00, key="R1", who="op", moment=NOW)
    ingest(cluster, a_job(gpus=40))

    def close() -> bool:
        return closed("2026-03", tenant).outcome in ("issued", "already issued")

    def spend() -> bool:
        try:
            wallet_holds.spend(wallet=wallet, amount=10_00, moment=NOW, memo="A reservation")
        except WalletError:
            return False
        return True

    done = at_once(*[close] * 2, *[spend] * 18)

    assert all(done[:2])
    wallet.refresh_from_db()
    paid = invoice_of(tenant, "2026-03").prepaid
    assert wallet.balance == 100_00 - paid - 10_00 * sum(done[2:]) >= 0
    assert paid == min(80_00, 100_00 - 10_00 * sum(done[2:])) or wallet.balance == 0
    prove()
