"""Prepaid balances: what is used is booked in full, limits hold, and every booking adds up to zero."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from django.db import ProgrammingError, connection, transaction
from django.db.models import Sum

from billing.invoicing.month_close import Outcome, close_month
from billing.models import GrantRule, Invoice, Plan, Wallet, WalletEntry, WalletGrant, WalletScheme
from billing.proof.checks import prove
from billing.rules.money import TOKENS, Money
from billing.wallets import booking, grants, wallet_holds
from billing.wallets.batch import LeftOverError
from billing.wallets.entries import WalletError
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests import sharing
from tests.builders import LATER, LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest, own

pytestmark = pytest.mark.django_db

MILLION = 10**6  # smallest units of a token
END = at("2026-03-31 23:00")

TOKEN_PRICES = [
    ("gpu-hour", {"gpu_model": ["rtx2080"]}, "0.5", LONG_AGO),
    ("gpu-hour", {"gpu_model": ["rtx3090"]}, "1", LONG_AGO),
    ("gpu-hour", {"gpu_model": ["a6000"]}, "4", LONG_AGO),
]


def a_token_plan() -> Plan:
    return a_plan("tokens", TOKENS, prices=TOKEN_PRICES, settles="wallet")


def a_scheme(tenant: Tenant, *, scope: str = "user", overdraft: int = 10, **rules: object) -> WalletScheme:
    """Wallets from March on; rules as name=(amount, every) or (amount, every, cap), in tokens."""
    scheme = WalletScheme.objects.create(
        tenant=tenant, scope=scope, unit=TOKENS, overdraft=overdraft * MILLION, since=at("2026-03-01")
    )
    for name, terms in rules.items():
        amount, every, cap = (*terms, None)[:3]  # type: ignore[misc]
        GrantRule.objects.create(
            scheme=scheme,
            name=name,
            amount=int(Fraction(str(amount)) * MILLION),
            every=every,
            begins_at=scheme.since,
            cap=cap * MILLION if cap is not None else None,
        )
    return scheme


def a_long_job(hours: int, gpus: int, model: str, **fields: object) -> UsageFact:
    return a_job(
        started="2026-03-02 10:00", ended=f"2026-03-02 {10 + hours}:00", gpus=gpus, gpu_model=model, **fields
    )


def a_lab() -> tuple[Cluster, Tenant]:
    cluster = a_cluster()
    tenant = a_tenant(plan=a_token_plan(), accounts=[(cluster, "vision")])
    return cluster, tenant


begun, lab = sharing.fixtures(a_lab, "lab")


def balances() -> dict[str, str]:
    return {str(wallet): tokens(wallet.balance) for wallet in Wallet.objects.order_by("pk")}


def tokens(amount: int) -> str:
    return Money.from_minor(amount, TOKENS).text.rstrip("0").rstrip(".")


def test_worked_example_b_84_tokens_leave_46(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, initial=(100, "once"), monthly=(30, "month"))
    ingest(
        cluster,
        a_long_job(5, 8, "rtx2080"),
        a_long_job(10, 4, "rtx3090"),
        a_long_job(3, 2, "a6000"),
    )
    booking.book(tenant=tenant, moment=END)
    assert balances() == {"ben": "46"}
    used = WalletEntry.objects.filter(side="used").aggregate(sum=Sum("amount"))["sum"]
    assert tokens(used) == "84"


def test_booking_again_changes_nothing(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, initial=(100, "once"))
    ingest(cluster, a_long_job(5, 8, "rtx2080"))
    booking.book(tenant=tenant, moment=END)
    before = list(WalletEntry.objects.values_list("pk", flat=True))
    booking.book(tenant=tenant, moment=END)
    assert booking.book_due(moment=END) == 0
    assert list(WalletEntry.objects.values_list("pk", flat=True)) == before
    assert balances() == {"ben": "80"}


def test_a_wallet_that_cannot_be_booked_holds_up_none_behind_it(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    speech = a_tenant("speech-lab", plan=Plan.objects.get(), accounts=[(cluster, "speech")])
    for owner in (tenant, speech):
        a_scheme(owner, scope="tenant", initial=(100, "once"))
    ingest(cluster, a_long_job(5, 8, "rtx2080"), a_long_job(1, 1, "rtx3090", account="speech"))
    GrantRule.objects.filter(scheme__tenant=tenant).update(
        amount=2**63 - 1
    )  # the use before it leaves the column
    first = booking.wallet_of(WalletScheme.objects.get(tenant=tenant), booking.Owner(None, ""))
    grants.grant(wallet=first, amount=100 * MILLION, key="gift", who="op", moment=at("2026-02-28"))

    with pytest.raises(LeftOverError, match=r"^Left over: Vision Lab\. .*out of range"):
        booking.book_due(moment=END)
    assert balances()["Speech Lab"] == "99"
    with pytest.raises(LeftOverError, match="out of range"):
        grants.tend(moment=END)

    GrantRule.objects.update(amount=100 * MILLION)
    assert booking.book_due(moment=END) == 1  # the one that was left over
    assert balances() == {"Vision Lab": "180", "Speech Lab": "99"}


def test_wallets_without_anything_due_cost_no_query(
    lab: tuple[Cluster, Tenant], django_assert_max_num_queries: Any
) -> None:
    _, tenant = lab
    scheme = a_scheme(tenant, monthly=(30, "month"))
    for user in range(20):
        booking.wallet_of(scheme, booking.Owner(None, f"user-{user}"))
    grants.tend(moment=at("2026-03-01"))
    assert set(balances().values()) == {"30"}
    with django_assert_max_num_queries(3):
        grants.tend(moment=END)
    grants.tend(moment=at("2026-04-01"))
    assert set(balances().values()) == {"60"}


def test_case_067_a_debt_below_the_overdraft_is_booked_in_full_and_stays(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    scheme = a_scheme(tenant, initial=(4, "once"))
    ingest(cluster, a_long_job(10, 8, "rtx3090"), a_long_job(13, 8, "rtx3090"))
    booking.book(tenant=tenant, moment=END)
    assert balances() == {"ben": "-180"}
    wallet = Wallet.objects.get(scheme=scheme)
    with pytest.raises(
        WalletError, match=r"1.000000 TOK is more than the 0.000000 TOK that ben may still spend"
    ):
        wallet_holds.hold(wallet=wallet, amount=MILLION, key="job 7", moment=END)


def test_a_token_a_day_heals_a_negative_balance(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, daily=(1, "day"))
    ingest(cluster, a_long_job(5, 1, "rtx3090"))
    booking.book(tenant=tenant, moment=at("2026-03-02 20:00"))
    assert balances() == {"ben": "-3"}
    grants.tend(moment=at("2026-03-09 00:00"))
    assert balances() == {"ben": "4"}


def test_a_grant_of_an_hour_stops_at_its_cap_and_is_made_up_for_after_a_stop(
    lab: tuple[Cluster, Tenant],
) -> None:
    cluster, tenant = lab
    a_scheme(tenant, hourly=(1, "hour", 100))
    ingest(cluster, a_long_job(1, 1, "rtx3090"))
    booking.book(tenant=tenant, moment=at("2026-03-02 12:00"))
    assert balances() == {"ben": "36"}  # 37 full hours since the 1st, less one
    grants.tend(moment=at("2026-03-20 00:00"))
    assert balances() == {"ben": "100"}


def test_memory_of_gpus_is_no_obstacle_to_sums_of_zero(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, initial=(100, "once"), daily=(1, "day", 50))
    ingest(cluster, a_long_job(5, 8, "rtx2080"), a_long_job(7, 3, "a6000", user="zoe"))
    booking.book(tenant=tenant, moment=END)
    by_wallet = WalletEntry.objects.values_list("wallet").annotate(sum=Sum("amount"))
    assert {total for _, total in by_wallet} == {0}
    for wallet in Wallet.objects.all():
        own_entries = WalletEntry.objects.filter(wallet=wallet, side="balance")
        assert own_entries.aggregate(sum=Sum("amount"))["sum"] == wallet.balance
    for grant in WalletGrant.objects.all():
        entered = grant.entries.filter(side="balance").aggregate(sum=Sum("amount"))["sum"]
        assert (entered or 0) == grant.left


def test_a_corrected_job_gives_back_to_the_grant_it_took_from(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, initial=(100, "once"))
    ingest(cluster, a_long_job(5, 8, "rtx3090", job_id="7", source_key="7@1"))
    booking.book(tenant=tenant, moment=END)
    assert balances() == {"ben": "60"}
    ingest(cluster, a_long_job(4, 8, "rtx3090", job_id="7", source_key="7@1"))
    booking.book(tenant=tenant, moment=END)
    assert balances() == {"ben": "68"}
    assert WalletGrant.objects.get().left == 68 * MILLION


def test_case_066_what_expired_pays_for_no_later_day_and_goes(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    scheme = a_scheme(tenant)
    wallet = booking.wallet_of(scheme, booking.Owner(None, "ben"))
    grants.grant(
        wallet=wallet,
        amount=50 * MILLION,
        key="spring",
        who="op",
        moment=at("2026-03-01 09:00"),
        expires_on=date(2026, 3, 3),
    )
    ingest(
        cluster,
        a_long_job(5, 1, "rtx3090"),
        a_job(started="2026-03-03 10:00", ended="2026-03-03 14:00", gpu_model="rtx3090"),
    )
    booking.book(tenant=tenant, moment=at("2026-03-04"))
    assert balances() == {"ben": "41"}  # 50 less 5 of the 2nd; the 4 of the 3rd are a debt
    assert WalletGrant.objects.get().left == 45 * MILLION
    grants.tend(moment=END)
    assert balances() == {"ben": "-4"}


def test_case_068_what_returns_to_an_expired_grant_stays_expired(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    scheme = a_scheme(tenant)
    wallet = booking.wallet_of(scheme, booking.Owner(None, "ben"))
    grants.grant(
        wallet=wallet,
        amount=5 * MILLION,
        key="spring",
        who="op",
        moment=at("2026-03-01 09:00"),
        expires_on=date(2026, 3, 3),
    )
    ingest(cluster, a_long_job(5, 1, "rtx3090", job_id="7", source_key="7@1"))
    booking.book(tenant=tenant, moment=END)
    grants.tend(moment=END)
    ingest(cluster, a_long_job(2, 1, "rtx3090", job_id="7", source_key="7@1"))
    booking.book(tenant=tenant, moment=END)
    grants.tend(moment=END)
    assert balances() == {"ben": "0"}


def test_a_grant_is_given_once_and_pays_the_debt_first(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, scope="tenant")
    ingest(cluster, a_long_job(5, 1, "rtx3090"))
    booking.book(tenant=tenant, moment=END)
    wallet = Wallet.objects.get()
    arguments = {"wallet": wallet, "amount": 20 * MILLION, "key": "TRX 17", "who": "op", "moment": END}
    first = grants.grant(**arguments)  # type: ignore[arg-type]
    assert grants.grant(**arguments) == first  # type: ignore[arg-type]
    assert balances() == {"Vision Lab": "15"}
    assert WalletGrant.objects.get().left == 15 * MILLION
    with pytest.raises(WalletError, match="'TRX 17' was granted before with another amount"):
        grants.grant(**{**arguments, "amount": MILLION})  # type: ignore[arg-type]


def test_holds_end_at_the_overdraft_and_come_back(lab: tuple[Cluster, Tenant]) -> None:
    _, tenant = lab
    scheme = a_scheme(tenant, initial=(20, "once"))
    wallet = booking.wallet_of(scheme, booking.Owner(None, "ben"))
    grants.accrue(wallet=wallet, moment=END)
    wallet_holds.hold(wallet=wallet, amount=28 * MILLION, key="job 1", moment=END)
    with pytest.raises(WalletError, match=r"3\.000000 TOK is more than the 2\.000000 TOK"):
        wallet_holds.hold(wallet=wallet, amount=3 * MILLION, key="job 2", moment=END)
    wallet_holds.release(wallet=wallet, key="job 1", moment=END)
    wallet_holds.release(wallet=wallet, key="job 1", moment=END)
    wallet_holds.spend(wallet=wallet, amount=30 * MILLION, moment=END, memo="A reservation")
    assert balances() == {"ben": "-10"}


def test_a_requeued_job_is_held_again_under_the_key_that_was_released(lab: tuple[Cluster, Tenant]) -> None:
    _, tenant = lab
    wallet = booking.wallet_of(a_scheme(tenant, initial=(20, "once")), booking.Owner(None, "ben"))
    grants.accrue(wallet=wallet, moment=END)
    for _ in range(3):
        first = wallet_holds.hold(wallet=wallet, amount=8 * MILLION, key="job 1", moment=END)
        assert wallet_holds.hold(wallet=wallet, amount=8 * MILLION, key="job 1", moment=END) == first
        assert tokens(Wallet.objects.get().held) == "8"
        wallet_holds.release(wallet=wallet, key="job 1", moment=END)
        assert tokens(Wallet.objects.get().held) == "0"
    wallet_holds.hold(wallet=wallet, amount=28 * MILLION, key="job 1", moment=END)
    assert prove().holds
    wallet_holds.release(wallet=wallet, key="job 1", moment=END)
    wallet_holds.spend(wallet=wallet, amount=25 * MILLION, moment=END, memo="A reservation")
    with pytest.raises(WalletError, match=r"8\.000000 TOK is more than the 5\.000000 TOK"):
        wallet_holds.hold(wallet=wallet, amount=8 * MILLION, key="job 1", moment=END)


def test_each_project_pays_from_its_own(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    own(tenant, cluster, "nlp", project="Translation")
    a_scheme(tenant, scope="project", initial=(10, "once"))
    ingest(cluster, a_long_job(2, 1, "rtx3090"), a_long_job(3, 1, "rtx3090", account="nlp"))
    booking.book(tenant=tenant, moment=END)
    assert sorted(balances().values()) == ["7", "8"]


def test_without_a_scheme_the_tenants_debt_is_seen_all_the_same(lab: tuple[Cluster, Tenant]) -> None:
    cluster, _ = lab
    ingest(cluster, a_long_job(2, 1, "rtx3090"))
    assert booking.book_due(moment=END) == 1
    assert balances() == {"Vision Lab": "-2"}


def test_any_batching_of_the_same_jobs_books_the_same(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, initial=(100, "once"))
    jobs = [
        a_job(started=f"2026-03-{day:02d} 22:00", ended=f"2026-03-{day + 1:02d} 05:07", gpu_model="rtx2080")
        for day in range(2, 12)
    ]
    for job in reversed(jobs):
        ingest(cluster, job)
        booking.book(tenant=tenant, moment=END)
    assert balances() == {"ben": "64.41667"}  # ten times 3.558333: 7 h 7 min at 0.5, rounded a service day


def test_a_booking_that_does_not_add_up_is_refused_by_the_database(lab: tuple[Cluster, Tenant]) -> None:
    _, tenant = lab
    wallet = booking.wallet_of(a_scheme(tenant), booking.Owner(None, "ben"))
    WalletEntry.objects.create(
        booking=UUID(int=0), wallet=wallet, tenant=tenant, side="balance", amount=5, at=END
    )
    with (
        pytest.raises(ProgrammingError, match="do not add up to zero"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    transaction.set_rollback(True)


def test_seconds_paid_by_wallet_are_billed_once_they_are_booked_and_stand_on_no_invoice(
    lab: tuple[Cluster, Tenant],
) -> None:
    cluster, tenant = lab
    a_scheme(tenant, initial=(100, "once"))
    ingest(cluster, a_long_job(5, 8, "rtx2080"), as_of="2026-04-01")
    sums = prove().sums["gpu1", "gpu"]
    assert sums.parts["pending"] == 144_000
    assert sums.parts["billed"] == 0
    booking.book_due(moment=END)
    proof = prove()
    assert proof.holds, [check for check in proof.checks if check.broken]
    assert proof.sums["gpu1", "gpu"].parts["billed"] == 144_000
    (closed,) = close_month(tenants=[tenant], year=2026, month=3, moment=LATER)
    assert closed.outcome is Outcome.NOTHING
    assert not Invoice.objects.exists()
    assert prove().holds


def test_a_balance_that_was_changed_by_hand_breaks_the_proof(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, initial=(100, "once"))
    ingest(cluster, a_long_job(5, 8, "rtx2080"))
    booking.book_due(moment=END)
    Wallet.objects.update(balance=99 * MILLION)
    broken = [check.name for check in prove().checks if check.broken]
    assert broken == ["wallets, grants and days stand as their entries"]


def test_eve_reads_nothing_of_another_tenants_wallets(lab: tuple[Cluster, Tenant]) -> None:
    cluster, tenant = lab
    a_scheme(tenant, initial=(100, "once"))
    ingest(cluster, a_long_job(2, 1, "rtx3090"))
    booking.book(tenant=tenant, moment=END)
    eve = a_tenant("eve-lab")
    with tenant_scope(eve):
        assert not Wallet.objects.exists()
        assert not WalletEntry.objects.exists()
        assert not WalletGrant.objects.exists()
    with tenant_scope(tenant):
        assert Wallet.objects.count() == 1
