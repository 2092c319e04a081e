"""Kill -9 while reservations are released: each goes once, is told once, and its wallet holds nothing for it."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.models import GrantEvery, Reservation, Wallet, WalletHold, WalletScope
from billing.quotas.proof import prove_reservations
from billing.rules.money import TOKENS
from billing.wallets import grants, wallet_terms
from billing.wallets.wallet_terms import Rule
from portal.core.events.models import Event, EventType
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant
from tests.integration.operators import Operator
from tests.quota_stories import a_quota
from tests.scenarios.test_reservations import ACTS, reserve

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.long]

PASS = "task", "billing.tasks.review_quotas"
JOBS = 60


@pytest.mark.parametrize("seed", range(1, 9))
def test_quota_060_killed_while_it_releases_it_releases_and_tells_once(seed: int, database_url: str) -> None:
    dice, now = random.Random(seed), datetime.now(UTC).replace(microsecond=0)
    cluster = a_cluster(complete_through=f"{now:%Y-%m-%d %H:%M}")
    plan = a_plan("tokens", TOKENS, prices=[("gpu-hour", {}, "1", LONG_AGO)], settles="wallet")
    tenant = a_tenant("vision", plan=plan, accounts=[(cluster, "vision")])
    since = now - timedelta(days=10)
    scheme = wallet_terms.set_scheme(
        tenant=tenant, unit=TOKENS, scope=WalletScope.TENANT, overdraft=0, since=since
    )
    rule = Rule(name="to begin with", amount=100 * 10**6, every=GrantEvery.ONCE, begins_at=since)
    wallet_terms.set_rule(scheme=scheme, rule=rule)
    grants.tend(moment=now)
    day = f"{now - timedelta(days=1):%Y-%m-%d}"
    a_quota(tenant, made=day, unit=TOKENS, measure="credits", amount=Decimal(1000), **ACTS)
    for number in range(JOBS):
        reserve(cluster, 1, 1, f"job {number}", now=now - timedelta(minutes=20))
    assert Wallet.objects.get().held == JOBS * 10**6

    def released() -> int:
        return Reservation.objects.exclude(released_at=None).count()

    with Operator(database_url) as op:
        killed = 0
        for _ in range(4):
            goal = min(JOBS, released() + dice.randrange(1, 20))
            killed += op.is_killed_doing(*PASS, count=released, at=goal, after=dice.uniform(0, 0.02))
        assert Wallet.objects.get().held == (JOBS - released()) * 10**6
        assert Event.objects.filter(type=EventType.QUOTA_RESERVATION_LAPSED).count() == released()
        op.does(*PASS)
    assert killed
    assert released() == JOBS
    assert Wallet.objects.get().held == 0
    assert not WalletHold.objects.filter(released_at=None).exists()
    assert Event.objects.filter(type=EventType.QUOTA_RESERVATION_LAPSED).count() == JOBS
    assert prove_reservations(moment=now).broken == []
