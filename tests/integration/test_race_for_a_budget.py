"""Twenty programs reserve of one budget, or of one wallet, at once: it goes to as many as it is enough for. Case 46."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.admission import follow
from billing.models import QuotaAction, Reservation, ReservedAmount, Wallet
from billing.quotas.proof import prove_reservations
from billing.rules.money import TOKENS
from tests.builders import a_cluster, a_plan, a_tenant, at, own
from tests.integration.test_race_for_the_same_rows import at_once
from tests.quota_stories import a_quota
from tests.scenarios.test_reservations import reserve
from tests.scenarios.test_reservations_of_wallets import a_lab_with_tokens

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_quota_046_of_twenty_who_reserve_9_of_100_at_once_eleven_are_admitted() -> None:
    cluster = a_cluster(complete_through="2026-03-05 12:00")
    lab = a_tenant("vision", plan=a_plan(), accounts=[(cluster, "vision")])
    a_quota(lab, amount=Decimal(100), action=QuotaAction.NO_GPU_JOBS)
    a_quota(lab, "notifies", amount=Decimal(50))

    def ask(number: int) -> bool:
        return reserve(cluster, 4.5, 1, f"job {number}").reservation is not None  # 9.00

    done = at_once(*[lambda number=number: ask(number) for number in range(20)])

    assert sum(done) == 11
    assert Reservation.objects.count() == 11
    assert ReservedAmount.objects.count() == 22

    key = f"job {done.index(True)}"
    same = at_once(*[lambda: reserve(cluster, 4.5, 1, key).reservation] * 5)
    assert len({row and row.pk for row in same}) == 1
    late = at("2026-03-05 12:15")
    assert sum(at_once(*[lambda: follow.follow_reservations(moment=late).lapsed] * 4)) == 11
    again = at_once(*[lambda: reserve(cluster, 4.5, 1, key, now=late).reservation] * 5)
    assert len({row and row.pk for row in again}) == 1
    assert Reservation.objects.filter(released_at=None).count() == 1


@pytest.mark.parametrize("budgets", [0, 1])
def test_quota_046_of_twenty_who_reserve_9_of_a_wallets_100_at_once_eleven_are_admitted(budgets: int) -> None:
    """With a budget of 90 beside it ten are: neither holds anything for those that the other refuses."""
    cluster = a_cluster(complete_through="2026-03-05 12:00")
    lab = a_lab_with_tokens(cluster)
    for _ in range(budgets):
        a_quota(lab, unit=TOKENS, measure="credits", amount=Decimal(90), action=QuotaAction.NO_GPU_JOBS)

    done = at_once(
        *[lambda number=number: reserve(cluster, 9, 1, f"job {number}").reservation for number in range(20)]
    )

    admitted = 11 - budgets
    assert sum(row is not None for row in done) == admitted
    assert Wallet.objects.get().held == admitted * 9 * 10**6
    assert Reservation.objects.count() == admitted
    assert ReservedAmount.objects.count() == admitted * (1 + budgets)
    late, key = at("2026-03-05 12:15"), Reservation.objects.earliest("pk").key
    asked = [lambda: reserve(cluster, 9, 1, key, now=late).reservation is not None] * 4
    passes = [lambda: follow.follow_reservations(moment=late) is not None] * 4
    assert all(at_once(*asked, *passes))
    assert Wallet.objects.get().held == 9 * 10**6
    assert prove_reservations(moment=late).broken == []


def test_quota_062_of_twenty_of_two_projects_who_reach_for_a_pool_at_once_none_gets_what_another_has() -> (
    None
):
    """Each has 9.00 of its own, and both share 20.00: one job of 9.00 each, and two of the pool."""
    cluster = a_cluster(complete_through="2026-03-05 12:00")
    lab = a_tenant("vision", plan=a_plan(), accounts=[])
    for account in ("nlp", "speech"):
        own(lab, cluster, account, project=account)
    pool = a_quota(lab, "shared", amount=Decimal(20), lends=True)
    for account in ("nlp", "speech"):
        project = lab.projects.get(name=account)
        a_quota(
            lab,
            account,
            amount=Decimal(9),
            project=project,
            borrows_from=pool,
            action=QuotaAction.NO_GPU_JOBS,
        )

    def ask(number: int) -> bool:
        account = ("nlp", "speech")[number % 2]
        return reserve(cluster, 4.5, 1, f"job {number}", account=account).reservation is not None

    done = at_once(*[lambda number=number: ask(number) for number in range(20)])

    assert sum(done) == 4
