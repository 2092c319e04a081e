"""Quotas over many billing periods: each period is what its own statement says, and all take as many queries as one."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.catalog.third_party_payers import pay_for
from billing.models import BillingPeriod, Plan, Quota, QuotaCredits, QuotaEvery
from billing.queries.accrued_charges import accrued
from billing.quotas import figures, quotas
from billing.quotas.past_periods import load_past_periods
from clusters.models import Cluster
from portal.config_file import apply, schema
from portal.core.tenants.models import Tenant
from tests import builders, stories
from tests.quota_stories import a_quota, look, spend

pytestmark = pytest.mark.django_db
PLAN = """
[[plan]]
name = "all"
currency = "USD"
from = 2026-01-01
charges = ["gpu"]
[[plan.allowance]]
name = "Included"
hours = "50"
rollover = true
[[plan.price]]
meter = "gpu-hour"
model = "graduated"
tiers = [{ up_to = 100, unit_price = "3.00" }, { unit_price = "1.00" }]
allowance = "Included"
[[plan.fee]]
name = "platform"
amount = "100.00"
in_advance = true
[[plan.commitment]]
amount = "20.00"
[[plan.discount]]
name = "loyal"
percent = "10"
"""
HOURS = (30, 210, 55, 0, 400, 120)
"""GPU-hours of each month from January on."""


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster()


def a_tenant(cluster: Cluster, name: str) -> Tenant:
    if not Plan.objects.filter(name="all").exists():
        apply.apply(file=schema.parse(PLAN))
    plan = Plan.objects.get(name="all")
    return builders.a_tenant(name, plan=plan, plan_from=date(2026, 1, 1), accounts=[(cluster, name)])


def use(cluster: Cluster, tenant: Tenant, hours: int, month: int) -> None:
    times = {"started": f"2026-{month:02}-10 10:00", "ended": f"2026-{month:02}-10 11:00"}
    builders.ingest(cluster, builders.a_job(**times, gpus=hours, account=tenant.slug))


def statement(tenant: Tenant, month: int) -> Fraction:
    """What the month's own statement comes to."""
    overview = accrued(tenant=tenant, period=tenant.periods.get(start=builders.at(f"2026-{month:02}-01")))
    assert overview is not None
    (amount,) = overview.sums
    return amount.amount


def used(quota: Quota, moment: str) -> Fraction:
    row = quotas.list_quotas().get(pk=quota.pk)
    return figures.load_figures([row], moment=builders.at(moment))[quota.pk].used


def count_queries(quota: Quota, moment: str, periods: int) -> int:
    row = quotas.list_quotas().get(pk=quota.pk)
    with CaptureQueriesContext(connection) as queries:
        assert len(load_past_periods(row, moment=builders.at(moment))) == periods
    return len(queries)


def test_each_month_is_its_own_statement_and_the_year_all_of_them(cluster: Cluster) -> None:
    lab = a_tenant(cluster, "lab")
    monthly = a_quota(lab, made="2026-01-01")
    year = a_quota(lab, "year", made="2026-01-01", every=QuotaEvery.YEAR)
    for month, hours in enumerate(HOURS, 1):
        if hours:
            use(cluster, lab, hours, month)
        look(f"2026-{month:02}-20")
    months = [statement(lab, month) for month in range(1, 7)]
    # Less a tenth: the fee and 20.00 of the commitment where what is included covers all; 210 − 50 − 20 h in two tiers;
    # 400 − 50 − 50 h; 120 − 50 h.
    assert [f"{amount}" for amount in months] == ["108", "396", "108", "108", "540", "279"]
    past = load_past_periods(quotas.list_quotas().get(pk=monthly.pk), moment=builders.at("2026-07-01"))
    assert [one.used for one in reversed(past)] == months
    assert used(year, "2026-06-30") == sum(months)
    going_on: dict[str, Any] = {"ended": None, "seen_until": "2026-06-30 11:00", "state": "RUNNING"}
    job = builders.a_job(started="2026-06-30 10:00", gpus=8, account="lab", **going_on)
    builders.ingest(cluster, job, as_of="2026-06-30 11:00")
    assert used(year, "2026-06-30 11:00") == sum(months[:5]) + statement(lab, 6)


@pytest.mark.parametrize("kind", QuotaCredits.values)
def test_quota_059_many_periods_take_as_many_queries_as_two(cluster: Cluster, kind: str) -> None:
    lab = a_tenant(cluster, "lab")
    quota = a_quota(lab, made="2026-01-01", credits=QuotaCredits(kind))
    for month, hours in enumerate(HOURS, 1):
        use(cluster, lab, hours + 1, month)
        look(f"2026-{month:02}-20")
    count_queries(quota, "2026-03-01", 2)  # what a connection looks up once
    assert count_queries(quota, "2026-07-01", 6) == count_queries(quota, "2026-03-01", 2) <= 30


def test_months_of_who_pays_for_others_and_of_these_are_their_own_statements_in_as_many_queries(
    cluster: Cluster,
) -> None:
    lab, guest = a_tenant(cluster, "lab"), a_tenant(cluster, "guest")
    pay_for(payer=lab, tenant=guest, since=date(2026, 2, 1), until=date(2026, 4, 1))
    pay_for(payer=lab, tenant=guest, since=date(2026, 5, 1))
    paying = a_quota(lab, made="2026-01-01", with_paid=True)
    theirs = a_quota(guest, made="2026-01-01")
    for month, hours in enumerate(HOURS, 1):
        use(cluster, lab, hours + 1, month)
        use(cluster, guest, 3 * hours + 7, month)
        look(f"2026-{month:02}-20")
    expected = [statement(lab, month) + paid_for_others(lab, month) for month in range(1, 7)]
    assert paid_for_others(lab, 4) == 0 != paid_for_others(lab, 5)
    for quota, months in ((paying, expected), (theirs, [statement(guest, month) for month in range(1, 7)])):
        past = load_past_periods(quotas.list_quotas().get(pk=quota.pk), moment=builders.at("2026-07-01"))
        assert [one.used for one in reversed(past)] == months
        assert count_queries(quota, "2026-07-01", 6) == count_queries(quota, "2026-04-01", 3)


def paid_for_others(tenant: Tenant, month: int) -> Fraction:
    charges = accrued(tenant=tenant, period=tenant.periods.get(start=builders.at(f"2026-{month:02}-01")))
    assert charges is not None
    return sum((row.amount.amount for row in charges.paid), Fraction(0))


def test_what_is_billed_of_several_tenants_with_fees_before_anything_is_used_in_the_month(
    cluster: Cluster,
) -> None:
    apply.apply(file=schema.parse(PLAN.replace("in_advance = true", "in_advance = false")))
    labs = [a_tenant(cluster, name) for name in ("one", "two", "three")]
    for lab in labs:
        a_quota(lab, "net", made="2026-01-01", credits=QuotaCredits.NET)
        use(cluster, lab, 60, 1)
        assert stories.closed("2026-01", lab, accept="the lab's").number
    assert not BillingPeriod.objects.filter(start__gte=builders.at("2026-02-01")).exists()
    for lab in labs[1:]:
        use(cluster, lab, 10, 1)
    rows = list(quotas.list_quotas())
    standing = figures.load_figures(rows, moment=builders.at("2026-02-05"))
    by_name = {row.tenant.slug: standing[row.pk].used for row in rows}
    assert by_name["two"] == by_name["three"]
    assert by_name["two"] - by_name["one"] == 27  # ten hours more at 3.00, less a tenth


def test_a_correction_belongs_to_the_first_month_that_is_open(cluster: Cluster) -> None:
    vision = builders.a_tenant("vision", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    net = a_quota(vision, made="2026-01-01", credits=QuotaCredits.NET)
    spend(cluster, "100", "2026-01-10")
    assert stories.closed("2026-01", vision, accept="the lab's").number
    for month, dollars in ((2, "20"), (3, "3")):
        spend(cluster, dollars, f"2026-{month:02}-10")
        look(f"2026-{month:02}-15")
    spend(cluster, "7", "2026-01-20")
    assert used(net, "2026-03-15") == 3  # the next close is February's
    (february, january) = load_past_periods(
        quotas.list_quotas().get(pk=net.pk), moment=builders.at("2026-03-15")
    )
    assert (f"{february.used}", f"{january.used}") == ("27", "107")
