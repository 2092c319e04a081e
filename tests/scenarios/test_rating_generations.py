"""A job whose end, or whose owner, comes and goes is rated each time, whatever was rated before."""

from __future__ import annotations

from functools import partial

import pytest

from billing.models import RatedUsage
from billing.proof import checks
from billing.rating import engine
from clusters import usage
from clusters.models import Account
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership
from tests import builders
from tests.builders import at

pytestmark = pytest.mark.django_db


def gpu_seconds(tenant_id: int) -> int:
    rows = RatedUsage.objects.filter(tenant_id=tenant_id, resource="gpu")
    return sum(row.units for row in rows)


def test_an_end_that_moves_to_and_fro_over_a_month_border() -> None:
    cluster = builders.a_cluster()
    tenant = builders.a_tenant(plan=builders.a_plan(), accounts=[(cluster, "vision")])
    long = builders.a_job(job_id="7", started="2026-03-31 12:00", ended="2026-04-01 12:00")
    short = builders.a_job(job_id="7", started="2026-03-31 12:00", ended="2026-04-01 00:00")
    for _ in range(3):
        builders.ingest(cluster, long)
        assert gpu_seconds(tenant.pk) == 24 * 3600
        builders.ingest(cluster, short)
        assert gpu_seconds(tenant.pk) == 12 * 3600
    assert checks.prove().holds


def test_an_account_that_goes_from_one_tenant_to_nobody_to_another() -> None:
    cluster = builders.a_cluster()
    plan = builders.a_plan()
    ann = builders.a_tenant("ann", plan=plan, accounts=[(cluster, "vision")])
    eve = builders.a_tenant("eve", plan=plan)
    builders.ingest(cluster, builders.a_job(started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    account = Account.objects.get(name="vision")

    Ownership.objects.filter(account=account).update(until=at("2026-03-01"))
    engine.rate_accounts([account.pk])
    assert (gpu_seconds(ann.pk), gpu_seconds(eve.pk)) == (0, 0)

    ownership.assign(account=account, tenant=eve, since=at("2026-03-01"))
    engine.rate_accounts([account.pk])
    assert (gpu_seconds(ann.pk), gpu_seconds(eve.pk)) == (0, 3600)

    engine.rate_accounts([account.pk])
    assert RatedUsage.objects.filter(resource="gpu").count() == 3
    assert checks.prove().holds


@pytest.mark.parametrize(("most", "expected"), [(4, [2, 2, 1]), (5, [5])])
def test_an_account_is_rated_at_once_or_slice_by_slice(
    most: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = builders.a_cluster()
    ann = builders.a_tenant("ann", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    jobs = [
        builders.a_job(job_id=str(n), started="2026-03-02 10:00", ended="2026-03-02 11:00") for n in range(5)
    ]
    builders.ingest(cluster, *jobs)
    account = Account.objects.get(name="vision")
    monkeypatch.setattr(usage, "load_all", partial(usage.load_all, most=most))
    monkeypatch.setattr(usage, "slices", partial(usage.slices, size=2))

    seen: list[int] = []
    Ownership.objects.filter(account=account).update(until=at("2026-03-01"))
    engine.rate_accounts([account.pk], progress=seen.append)

    assert seen == expected
    assert gpu_seconds(ann.pk) == 0
    assert checks.prove().holds
