"""Plans, their versions and their prices change in the middle of a job; each second has the terms of its moment."""

from __future__ import annotations

from datetime import date

import pytest

from billing.models import PlanVersion, Price, Subscription
from billing.proof import checks
from billing.rating import engine
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.stories import closed, hours, invoice_of, printed, prove, seconds, total

pytestmark = pytest.mark.django_db

NEW_YEAR = date(2026, 1, 1)


def test_case_037_a_price_changes_at_midnight_of_the_tenants_zone_in_the_middle_of_a_job() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(prices=[("gpu-hour", {}, "2.00", NEW_YEAR)], effective_from=NEW_YEAR)
    Price.objects.update(valid_until=date(2026, 3, 15))
    version = PlanVersion.objects.get()
    Price.objects.create(
        version=version,
        meter="gpu-hour",
        resource="gpu",
        position=1,
        unit_price="3.00",
        valid_from=date(2026, 3, 15),
    )
    vision = a_tenant(
        plan=plan, timezone="America/Los_Angeles", plan_from=NEW_YEAR, accounts=[(cluster, "vision")]
    )
    ingest(
        cluster, a_job(started="2026-03-15 06:59:59", ended="2026-03-15 07:00:02", gpus=1200)
    )  # 00:00 PDT is 07:00

    closed("2026-03", vision)

    assert printed(invoice_of(vision, "2026-03")) == [
        ("2026-03", "vision", "1/3", "0.67"),
        ("2026-03", "vision", "2/3", "2.00"),
    ]
    prove()


def test_a_new_plan_version_holds_from_its_day_and_may_charge_other_resources() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(prices=[("gpu-hour", {}, "2.00", NEW_YEAR)], effective_from=NEW_YEAR)
    a_plan(
        prices=[("gpu-hour", {}, "2.50", NEW_YEAR), ("cpu-core-hour", {}, "0.10", NEW_YEAR)],
        charges=("gpu", "cpu"), effective_from=date(2026, 3, 10),
    )  # fmt: skip
    vision = a_tenant(plan=plan, plan_from=NEW_YEAR, accounts=[(cluster, "vision")])
    ingest(
        cluster, a_job(started="2026-03-09 23:00", ended="2026-03-10 02:00", cpu_milli=8000, memory_mib=1024)
    )

    assert seconds(vision, "cpu", "charged") == hours(16)
    sums = checks.prove().sums
    assert sums["gpu1", "cpu"].parts["waived"] == hours(8)
    assert sums["gpu1", "memory"].parts["waived"] == hours(3)
    closed("2026-03", vision)
    assert sorted(row[2:] for row in printed(invoice_of(vision, "2026-03"))) == [
        ("1", "2.00"),
        ("16", "1.60"),
        ("2", "5.00"),
    ]
    prove()


def test_case_043_047_a_change_of_plan_and_its_end_count_to_the_instant() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    small, large = a_plan("small"), a_plan("large", prices=[("gpu-hour", {}, "1.50", LONG_AGO)])
    vision = a_tenant(accounts=[(cluster, "vision")])
    Subscription.objects.create(
        tenant=vision, plan=small, since=at("2026-03-02"), until=at("2026-03-02 10:10")
    )
    Subscription.objects.create(
        tenant=vision, plan=large, since=at("2026-03-02 10:10"), until=at("2026-03-02 11:00")
    )
    ingest(cluster, a_job(started="2026-03-02 10:00", ended="2026-03-02 12:00", gpus=6))

    assert closed("2026-03", vision).outcome == "blocked"
    assert "No price covers 6.00 GPU-hours" in closed("2026-03", vision).reason
    assert prove()["pending"] == hours(12)

    Subscription.objects.filter(plan=large).update(until=None)
    engine.rate_tenants([vision])
    assert closed("2026-03", vision).outcome == "issued"
    assert [row[2:] for row in printed(invoice_of(vision, "2026-03"))] == [("1", "2.00"), ("11", "16.50")]


def test_a_plan_that_begins_within_a_second_counts_from_the_second() -> None:
    cluster = a_cluster()
    vision = a_tenant(accounts=[(cluster, "vision")])
    Subscription.objects.create(tenant=vision, plan=a_plan(), since=at("2026-03-02 10:30:00.400000"))
    ingest(cluster, a_job())

    assert seconds(vision) == 1800
    assert seconds(vision, verdict="unpriced") == 1800


def test_case_048_a_plan_backdated_into_a_closed_month_corrects_it_on_the_next_invoice() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(
        plan=a_plan("dear", prices=[("gpu-hour", {}, "3.00", LONG_AGO)]), accounts=[(cluster, "vision")]
    )
    ingest(cluster, a_job(), a_job(started="2026-04-02 10:00", ended="2026-04-02 15:00"))
    closed("2026-03", vision)

    Subscription.objects.update(plan=a_plan("cheap"))
    engine.rate_tenants([vision])

    closed("2026-04", vision)
    assert total(invoice_of(vision, "2026-03")) == "3.00"
    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "5", "10.00"),
        ("2026-03", "vision", "-1", "-3.00"),
        ("2026-03", "vision", "1", "2.00"),
    ]
    prove()
