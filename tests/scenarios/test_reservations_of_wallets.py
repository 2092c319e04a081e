"""A wallet holds what an admitted job may still cost: less by what was booked of it, and free when it ends."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import connection
from msgspec.structs import replace

from billing.admission import follow
from billing.admission import reserve as reserving
from billing.admission.check import check_job
from billing.admission.reserve import Array, release_key
from billing.admission.wording import answer_text
from billing.models import GrantEvery, Reservation, Wallet, WalletHold, WalletScope
from billing.quotas.proof import prove_quotas, prove_reservations
from billing.rules.money import TOKENS
from billing.wallets import booking, grants, wallet_terms
from billing.wallets.batch import LeftOverError
from billing.wallets.wallet_terms import Rule
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import builders
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant, at
from tests.quota_stories import a_quota
from tests.scenarios.test_reservations import ACTS, NOW, figures, reserve, runs, task_of
from tests.stories import prove

pytestmark = pytest.mark.django_db

TOKEN = 10**6


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-03-05 12:00")


def a_lab_with_tokens(cluster: Cluster) -> Tenant:
    """100 tokens in one wallet; a GPU-hour costs one."""
    plan = a_plan("tokens", TOKENS, prices=[("gpu-hour", {}, "1", LONG_AGO)], settles="wallet")
    tenant = a_tenant("vision", plan=plan, accounts=[(cluster, "vision")])
    scheme = wallet_terms.set_scheme(
        tenant=tenant, unit=TOKENS, scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    rule = Rule(name="to begin with", amount=100 * TOKEN, every=GrantEvery.ONCE, begins_at=scheme.since)
    wallet_terms.set_rule(scheme=scheme, rule=rule)
    grants.tend(moment=NOW)
    return tenant


@pytest.fixture
def lab(cluster: Cluster) -> Tenant:
    return a_lab_with_tokens(cluster)


def wallet() -> tuple[float, float]:
    """Tokens that are left, and of them held."""
    row = Wallet.objects.get()
    return row.balance / TOKEN, row.held / TOKEN


def look(moment: str) -> None:
    """What was rated is booked, and a pass follows; the proofs close."""
    booking.book_due(moment=at(moment))
    follow.follow_reservations(moment=at(moment))
    assert prove_reservations(moment=at(moment)).broken == []
    prove()


def test_quota_046_a_wallet_and_a_budget_hold_the_worst_case_alike(lab: Tenant, cluster: Cluster) -> None:
    a_quota(lab, unit=TOKENS, measure="credits", amount=Decimal(1000), **ACTS)
    assert reserve(cluster, 6, job_id="77").reservation is not None
    assert wallet() == (100, 48)
    assert figures(lab) == ["0", "48", "952"]
    refused = reserve(cluster, 7, key="b")  # 56 of the 52 that are free
    assert refused.reservation is None
    assert refused.check is not None
    assert (refused.check.longest, refused.check.refusing) == (6 * 3600 + 30 * 60, [])
    assert answer_text(refused.check) == (
        "Wallet of Vision: 52 tokens may still be spent; this job needs up to 56 tokens. A time limit of 6:30:00 fits. "
        "To run it, top the wallet up."
    )
    job = builders.a_job(gpus=8, started="2026-03-05 12:00", ended="2026-03-05 18:30")
    assert check_job(tenant=lab, cluster="gpu1", job=job, now=NOW).may_run
    assert not check_job(tenant=lab, cluster="gpu1", job=replace(job, gpus=9), now=NOW).may_run

    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:30")
    look("2026-03-05 13:30")
    assert wallet() == (88, 36)  # 12 were booked, and are held no more
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 14:00")
    look("2026-03-05 14:00")
    assert wallet() == (84, 32)
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 14:30", ended=True)
    follow.follow_reservations(
        moment=at("2026-03-05 14:30")
    )  # before anything was booked: it books that first
    assert wallet() == (80, 0)
    look("2026-03-05 14:30")


def test_quota_047_a_wallet_is_held_anew_after_a_release_and_by_another_time_limit(
    lab: Tenant, cluster: Cluster
) -> None:
    reserve(cluster, 6)
    assert release_key(cluster=cluster, key="a", now=NOW)
    assert wallet() == (100, 0)
    reserve(cluster, 12)
    assert wallet() == (100, 96)
    assert reserve(cluster, 13).reservation is None
    assert wallet() == (100, 96)
    assert reserve(cluster, 2).reservation is not None
    assert wallet() == (100, 16)
    assert reserve(cluster, 1, 1, "b", array=Array(84)).reservation is not None
    assert wallet() == (100, 100)
    look("2026-03-05 12:20")  # neither job came
    assert wallet() == (100, 0)


def test_quota_061_prove_finds_a_hold_without_a_reservation_and_seconds_that_were_not_rated(
    lab: Tenant, cluster: Cluster
) -> None:
    reserve(cluster, 6, job_id="77")
    row = Reservation.objects.get()
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00")
    look("2026-03-05 13:00")
    moment = at("2026-03-05 13:00")
    assert prove_quotas(moment=moment).broken == []
    WalletHold.objects.filter(released_at=None).update(amount=1)
    (text,) = prove_reservations(moment=moment).broken
    assert text == f"reservation {row.pk}: {40 * TOKEN} left of wallet {Wallet.objects.get().pk}, 1 held"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_ratedjob SET suspended = 600 WHERE job_id = '77'")
    assert any(
        "24000 GPU-seconds taken off, 28800 rated" in text
        for text in prove_reservations(moment=moment).broken
    )
    Reservation.objects.update(released_at=moment, end="ended")
    assert prove_reservations(moment=moment).broken == [
        f"wallet {Wallet.objects.get().pk}: reservation:{row.pk} is held and stands no more"
    ]


def test_quota_047_what_is_rated_and_not_booked_is_not_free_where_a_running_job_is_asked_for_again(
    lab: Tenant, cluster: Cluster
) -> None:
    reserve(cluster, 6, job_id="77")
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00")
    follow.follow_reservations(moment=at("2026-03-05 13:00"))
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 14:00")  # 16 are rated, 8 of them booked
    later = at("2026-03-05 14:10")  # ten minutes are counted on
    assert reserve(cluster, 7, job_id="77", now=later).reservation is not None
    assert wallet() == (84, 40)
    look("2026-03-05 14:10")
    assert wallet() == (84, 40)
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 15:00", ended=True)
    assert release_key(cluster=cluster, key="a", now=at("2026-03-05 15:00"))
    assert wallet() == (76, 0)  # the last hour is booked before it is free


def test_quota_051_a_wallet_holds_for_the_next_task_of_an_array_and_for_a_job_that_waits_again(
    lab: Tenant, cluster: Cluster
) -> None:
    reserve(cluster, 1, 1, array=Array(3, 1), job_id="90")
    assert wallet() == (100, 1)
    builders.ingest(cluster, task_of(1, ended="2026-03-05 13:00"), as_of="2026-03-05 13:00")
    look("2026-03-05 13:00")
    assert wallet() == (99, 1)
    reserve(cluster, 2, key="b", job_id="77", now=at("2026-03-05 13:00"))
    runs(cluster, "77", "2026-03-05 13:00", "2026-03-05 14:00")
    look("2026-03-05 14:00")
    assert wallet() == (91, 9)
    runs(cluster, "77", "2026-03-05 13:00", "2026-03-05 15:00", ended=True)
    waits = builders.a_job(job_id="77", gpus=8, submitted="2026-03-05 15:00", started=None, ended=None)
    builders.ingest(cluster, replace(waits, state="PENDING"), as_of="2026-03-05 15:01")
    look("2026-03-05 15:01")
    assert wallet() == (83, 17)


def test_a_tenant_that_cannot_be_booked_keeps_no_other_reservation_from_going(
    lab: Tenant, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise ArithmeticError

    other = a_tenant("speech", plan=a_plan(), accounts=[(cluster, "speech")])
    a_quota(other, amount=Decimal(100), **ACTS)
    reserve(cluster, 6, job_id="77")
    reserve(cluster, 1, key="b", account="speech")
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 12:10", ended=True)
    monkeypatch.setattr(follow, "book", fail)
    monkeypatch.setattr(reserving, "book", fail)
    with pytest.raises(LeftOverError):
        follow.follow_reservations(moment=at("2026-03-05 12:15"))
    assert [row.end for row in Reservation.objects.order_by("key")] == ["", "never-came"]
    monkeypatch.undo()
    look("2026-03-05 12:15")
    assert wallet()[1] == 0
