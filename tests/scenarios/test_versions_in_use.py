"""A version of a plan is frozen once it rated anything; asking for that does not read what everybody ever used."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction

from billing.catalog import plans, subscriptions, version_terms
from billing.catalog.plans import PlanError
from billing.models import Fee, PlanVersion, RatedUsage
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_job, at, ingest
from tests.on_terms import a_lab, used
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def standard() -> PlanVersion:
    return a_version(TWO_DOLLARS)


@pytest.fixture
def lab(standard: PlanVersion) -> tuple[Cluster, Tenant]:
    """On the standard plan from March on, and read to the end of May."""
    cluster, lab = a_lab(standard)
    used(cluster, 5)
    used(cluster, 5, day="2026-04-20")
    return cluster, lab


def read() -> int:
    """How often a month of rated usage before June was looked into, by this test."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0) FROM pg_stat_xact_user_tables"
            " WHERE relname BETWEEN 'billing_ratedusage_2000' AND 'billing_ratedusage_2026_05'"
        )
        return int(cursor.fetchone()[0])


def test_a_plan_that_nobody_was_ever_on_changes_without_a_look_at_what_was_used(
    lab: tuple[Cluster, Tenant],
) -> None:
    draft = a_version(TWO_DOLLARS, name="draft")
    version_terms.set_fee(version=draft, name="Access", amount=Decimal(100))
    before = read()
    version_terms.set_fee(version=draft, name="Access", amount=Decimal(120))
    plans.delete_version(version=draft)
    assert read() == before


def test_a_version_that_is_still_to_come_changes_without_a_look_at_what_was_used(
    standard: PlanVersion, lab: tuple[Cluster, Tenant]
) -> None:
    later = plans.new_version(plan=standard.plan, effective_from=date(2026, 7, 1), charges=["gpu"])
    version_terms.set_fee(version=later, name="Access", amount=Decimal(100))
    before = read()
    version_terms.set_fee(version=later, name="Access", amount=Decimal(120))
    assert Fee.objects.get(version=later).amount == 120
    assert read() == before


def test_a_change_of_plan_that_is_still_to_come_is_withdrawn_without_a_look_at_what_was_used(
    lab: tuple[Cluster, Tenant],
) -> None:
    other = a_version(TWO_DOLLARS, name="other")
    change = subscriptions.subscribe(tenant=lab[1], plan=other.plan, since=at("2026-07-01"))
    before = read()
    subscriptions.withdraw(subscription=change)
    assert read() == before


def test_what_was_used_freezes_the_version_whoever_left_the_plan_since(lab: tuple[Cluster, Tenant]) -> None:
    """The change of plan for May is taken back by putting the lab on its old plan from the same day on."""
    cluster, tenant = lab
    other = a_version(TWO_DOLLARS, name="other")
    version_terms.set_fee(version=other, name="Access", amount=Decimal(100))
    change = subscriptions.subscribe(tenant=tenant, plan=other.plan, since=at("2026-05-01"))
    used(cluster, 5, day="2026-05-20")
    with pytest.raises(PlanError, match="has used plan other"):
        subscriptions.withdraw(subscription=change)
    subscriptions.subscribe(
        tenant=tenant, plan=a_version(TWO_DOLLARS, name="third").plan, since=at("2026-05-01")
    )
    assert not tenant.subscriptions.filter(plan=other.plan).exists()

    assert plans.in_use(other)
    with pytest.raises(PlanError):
        version_terms.set_fee(version=other, name="Access", amount=Decimal(120))
    with pytest.raises(DatabaseError, match="add a new version"), transaction.atomic():
        Fee.objects.filter(version=other).update(amount=120)


def test_a_version_that_begins_within_a_month_is_frozen_by_its_first_job(standard: PlanVersion) -> None:
    """On the first day of May in Kiritimati it is still the last of April in UTC."""
    may = plans.new_version(plan=standard.plan, effective_from=date(2026, 5, 1), charges=["gpu"])
    plans.set_price(version=may, meter="gpu-hour", where={}, model=TWO_DOLLARS, valid_from=date(2026, 5, 1))
    cluster, tenant = a_lab(standard)
    tenant.timezone = "Pacific/Kiritimati"
    tenant.save()
    used(cluster, 1, day="2026-04-30")
    assert plans.in_use(may)


def cores(cluster: Cluster, day: str, **fields: str) -> None:
    """Two cores for an hour, without a GPU: the plan does not charge them, and nothing of the job is rated."""
    times = {"started": f"{day} 10:00", "ended": f"{day} 11:00"} | fields
    ingest(cluster, a_job(account="vision", gpus=0, cpu_milli=2000, **times))


def test_a_version_by_which_all_use_was_free_is_frozen_too(standard: PlanVersion) -> None:
    """Else cores that a closed month gave for nothing could be billed afterwards, by a version that never said so."""
    cluster, _ = a_lab(standard)
    assert not plans.in_use(standard)
    cores(cluster, "2026-03-20")

    assert not RatedUsage.objects.exists()
    assert plans.in_use(standard)
    with pytest.raises(PlanError):
        plans.new_version(plan=standard.plan, effective_from=standard.effective_from, charges=["gpu", "cpu"])
    with pytest.raises(PlanError):
        plans.delete_version(version=standard)
    with pytest.raises(DatabaseError, match="add a new version"), transaction.atomic():
        PlanVersion.objects.filter(pk=standard.pk).update(charges=["gpu", "cpu"])


def test_a_version_is_not_frozen_by_free_use_before_or_after_it(standard: PlanVersion) -> None:
    april = plans.new_version(plan=standard.plan, effective_from=date(2026, 4, 1), charges=["gpu"])
    may = plans.new_version(plan=standard.plan, effective_from=date(2026, 5, 1), charges=["gpu"])
    cluster, _ = a_lab(standard)
    cores(cluster, "2026-03-31")
    cores(cluster, "2026-05-01")
    assert [plans.in_use(version) for version in (standard, april, may)] == [True, False, True]


def test_a_job_that_still_runs_freezes_the_versions_that_it_has_reached(standard: PlanVersion) -> None:
    later = [
        plans.new_version(plan=standard.plan, effective_from=day, charges=["gpu"])
        for day in (date(2026, 4, 1), date(2026, 6, 1))
    ]
    cluster, _ = a_lab(standard)
    ingest(
        cluster,
        a_job(
            account="vision", gpus=0, cpu_milli=2000, started="2026-03-20 10:00", ended=None,
            seen_until="2026-04-10 10:00", state="RUNNING",
        ),
    )  # fmt: skip
    assert [plans.in_use(version) for version in (standard, *later)] == [True, True, False]


def test_a_change_of_plan_under_which_all_use_was_free_is_not_withdrawn(
    lab: tuple[Cluster, Tenant],
) -> None:
    cluster, tenant = lab
    other = a_version(TWO_DOLLARS, name="other")
    change = subscriptions.subscribe(tenant=tenant, plan=other.plan, since=at("2026-05-01"))
    cores(cluster, "2026-05-20")
    with pytest.raises(PlanError, match="has used plan other"):
        subscriptions.withdraw(subscription=change)
