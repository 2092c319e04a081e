"""What fees and commitments add to a change of spend, whoever paid for the tenant in which month."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.catalog import billing_periods, version_terms
from billing.models import BillingPeriod
from billing.queries.accrued_charges import accrued, accrued_terms
from portal.core.tenants.models import Tenant
from tests import builders
from tests.on_terms import used
from tests.paying import pays
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def vision() -> Tenant:
    """It has a fee and a commitment; physics paid for it in April, chemistry in the second half of May."""
    cluster = builders.a_cluster(complete_through="2026-09-01")
    version = a_version(TWO_DOLLARS)
    version_terms.set_fee(version=version, name="Platform fee", amount=Decimal(50), in_advance=False)
    version_terms.set_commitment(version=version, amount=Decimal(100), overage_factor=Decimal(1))
    vision = builders.a_tenant("vision-lab", plan=version.plan, accounts=[(cluster, "vision")])
    physics, chemistry = (builders.a_tenant(name, plan=version.plan) for name in ("physics", "chemistry"))
    pays(physics, vision, "2026-04-01", "2026-05-01")
    pays(chemistry, vision, "2026-05-17", "2026-06-01")
    for month in ("03", "04", "05", "06"):
        used(cluster, 10, day=f"2026-{month}-10")
    billing_periods.ensure(tenant=vision, since=builders.at("2026-03-01"), until=builders.at("2026-07-01"))
    return vision


def list_periods(tenant: Tenant) -> list[BillingPeriod]:
    months = BillingPeriod.objects.filter(tenant=tenant, start__gte=builders.at("2026-03-01"))
    return list(months.filter(end__lte=builders.at("2026-07-01")).order_by("-start"))


def test_open_months_are_told_together_as_one_by_one(vision: Tenant) -> None:
    periods = list_periods(vision)
    together = accrued_terms(tenant=vision, periods=periods)
    alone = [accrued(tenant=vision, period=period) for period in periods]
    assert together == [one.terms for one in alone if one]
    june, may, april, march = (sum(amount.amount for _, amount in terms) for terms in together)
    # A fee, and what ten hours at $2.00 lack of the commitment.
    assert june == may == april == march == 50 + 80


def test_it_asks_as_much_for_four_months_as_for_two(vision: Tenant) -> None:
    periods, counts = list_periods(vision), []
    accrued_terms(tenant=vision, periods=periods)
    for months in (2, 4):
        with CaptureQueriesContext(connection) as queries:
            accrued_terms(tenant=vision, periods=periods[:months])
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 8
