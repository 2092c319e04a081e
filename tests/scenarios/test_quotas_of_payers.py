"""Quotas of a tenant that pays for others, and of those others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from billing.models import Quota, QuotaEvery
from billing.quotas import figures, quotas
from billing.quotas.terms import QuotaError
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import builders
from tests.paying import pays
from tests.quota_stories import a_quota, look, spend, told_events

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster()


@pytest.fixture
def physics(cluster: Cluster) -> Tenant:
    return builders.a_tenant("physics", plan=builders.a_plan(), accounts=[(cluster, "physics")])


@pytest.fixture
def vision(cluster: Cluster, physics: Tenant) -> Tenant:
    """Physics pays for it."""
    tenant = builders.a_tenant(
        "vision", plan=physics.subscriptions.get().plan, accounts=[(cluster, "vision")]
    )
    pays(physics, tenant, "2026-03-01")
    return tenant


def used(quota: Quota, moment: str = "2026-03-10") -> Decimal:
    rows = list(quotas.list_quotas().filter(pk=quota.pk))
    figure = figures.load_figures(rows, moment=builders.at(moment))[quota.pk]
    return Decimal(figure.used.numerator) / figure.used.denominator


def test_quota_007_what_a_payer_pays_for_others_counts_if_its_budget_says_so(
    cluster: Cluster, physics: Tenant, vision: Tenant
) -> None:
    own = a_quota(physics)
    both = a_quota(physics, "with-paid", with_paid=True)
    theirs = a_quota(vision)
    spend(cluster, "100.00", account="physics")
    spend(cluster, "40.00", account="vision")
    assert [used(quota) for quota in (own, both, theirs)] == [100, 140, 40]


def test_quota_007_from_the_day_on_that_it_pays(cluster: Cluster, physics: Tenant) -> None:
    other = builders.a_tenant("other", plan=physics.subscriptions.get().plan, accounts=[(cluster, "other")])
    both = a_quota(physics, with_paid=True)
    spend(cluster, "30.00", account="other", day="2026-03-02")
    pays(physics, other, "2026-03-05")
    spend(cluster, "12.00", account="other", day="2026-03-06")
    assert used(both) == 12
    assert used(a_quota(other)) == 42


def test_quota_007_use_of_others_is_seen_by_the_next_pass(
    cluster: Cluster, physics: Tenant, vision: Tenant
) -> None:
    a_quota(physics, with_paid=True, thresholds=("50%",), amount=Decimal(100))
    look("2026-03-03 12:00")
    spend(cluster, "60.00", account="vision")
    look("2026-03-03 12:01")
    assert told_events() == ["used 50%"]


@pytest.mark.parametrize(
    "period",
    [
        {"every": QuotaEvery.DAY},
        {"every": QuotaEvery.WEEK},
        {"every": QuotaEvery.ROLLING, "hours": 24},
    ],
)
def test_quota_007_a_period_within_a_billing_period_cannot_count_what_is_paid_for_others(
    physics: Tenant, period: dict[str, Any]
) -> None:
    """Of others, whole billing periods are known: it would count nothing, and say nothing."""
    with pytest.raises(QuotaError, match="whole billing periods"):
        a_quota(physics, with_paid=True, **period)
