"""A tenant moves to another time zone: its next periods follow, what was billed stays as it is."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from billing.catalog import plans, third_party_payers, version_terms
from billing.catalog.plans import PlanError
from billing.models import Invoice, InvoiceLine, Plan, RatedUsage
from billing.rating import engine
from billing.rules.meters import PerUnit
from billing.rules.money import Money
from clusters.models import Cluster
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest
from tests.stories import closed, hours, lines_of, prove
from tests.terms import TWO_DOLLARS

pytestmark = pytest.mark.django_db

MARCH, APRIL = date(2026, 3, 1), date(2026, 4, 1)
MARCH_1ST = {"started": "2026-02-28 23:00", "ended": "2026-03-01 01:00"}  # the first two hours in Berlin


@pytest.fixture
def plan() -> Plan:
    """From March on 2.00 a GPU-hour and 744.00 a month."""
    lab_plan = a_plan("lab", prices=[("gpu-hour", {}, "2.00", MARCH)], effective_from=MARCH)
    version_terms.set_fee(version=lab_plan.versions.get(), name="Base fee", amount=Decimal(744))
    return lab_plan


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-08-01")


@pytest.fixture
def lab(plan: Plan, cluster: Cluster) -> Tenant:
    """In Berlin, with March issued over the fee and the two first hours of it."""
    tenant = a_tenant(plan=plan, plan_from=MARCH, accounts=[(cluster, "vision")], timezone="Europe/Berlin")
    ingest(cluster, a_job(**MARCH_1ST))
    assert closed("2026-03", tenant).total.text == "748.00"  # type: ignore[union-attr]
    return tenant


def moves(tenant: Tenant, zone: str) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(timezone=zone)
    tenant.refresh_from_db()
    engine.rate_tenants([tenant])
    outbox.drain()


def newest(tenant: Tenant) -> list[tuple[str, str, str]]:
    """Each line of the newest invoice as (first day of service, project or description, amount)."""
    lines = lines_of(Invoice.objects.filter(tenant=tenant).latest("pk"))
    return [
        (
            f"{line.service_period.start:%Y-%m-%d %H:%M}",
            line.project or line.description,
            Money.from_minor(line.amount, "USD").text,
        )
        for line in lines
    ]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "Pacific/Kiritimati", "Pacific/Niue"])
def test_case_009_a_move_leaves_what_was_billed_as_it_is(lab: Tenant, zone: str) -> None:
    rated = RatedUsage.objects.count()
    moves(lab, zone)
    assert RatedUsage.objects.count() == rated
    assert closed("2026-04", lab).total.text == "744.00"  # type: ignore[union-attr]
    assert newest(lab) == [("2026-03-31 22:00", "Base fee", "744.00")]
    assert prove()["billed"] == hours(2)


@pytest.mark.parametrize(
    ("zone", "april"),
    [
        # In New York it is still March for four hours after April has begun in UTC, and the price is March's.
        ("America/New_York", [("vision", "8.00"), ("vision", "3.00")]),
        ("Asia/Tokyo", [("vision", "15.00")]),
    ],
)
def test_case_009_a_price_changes_by_the_clock_of_the_period(
    lab: Tenant, plan: Plan, cluster: Cluster, zone: str, april: list[tuple[str, str]]
) -> None:
    (old,) = plan.versions.get().prices.all()
    plans.end_price(price=old, on=APRIL)
    plans.set_price(
        version=plan.versions.get(), meter="gpu-hour", where={}, model=PerUnit(Decimal(3)), valid_from=APRIL
    )
    moves(lab, zone)
    ingest(cluster, a_job(started="2026-03-31 21:00", ended="2026-03-31 22:00"))
    ingest(cluster, a_job(started="2026-04-01 00:00", ended="2026-04-01 05:00"))
    closed("2026-04", lab)
    lines = newest(lab)
    assert ("2026-02-28 23:00", "vision", "2.00") in lines  # March's last hour, told late
    assert [line[1:] for line in lines if line[:2] == ("2026-03-31 22:00", "vision")] == april
    prove()


def test_case_009_a_fee_of_a_new_version_counts_from_the_midnight_of_the_period(
    lab: Tenant, plan: Plan
) -> None:
    """April lasts 30 days and 6 hours after the move west; the old fee holds in 6 of the 726 hours."""
    april = plans.new_version(plan=plan, effective_from=APRIL, charges=["gpu"])
    plans.set_price(version=april, meter="gpu-hour", where={}, model=TWO_DOLLARS, valid_from=APRIL)
    version_terms.set_fee(version=april, name="Base fee", amount=Decimal(1452))
    moves(lab, "America/New_York")
    closed("2026-04", lab)
    assert newest(lab) == [
        ("2026-03-31 22:00", "Base fee", "6.15"),  # 744.00 x 6 / 726
        ("2026-03-31 22:00", "Base fee", "1440.00"),  # 1,452.00 x 720 / 726
    ]


@pytest.mark.parametrize(
    ("zone", "may"),
    [
        ("America/New_York", "744.00"),  # May ends six hours after the institute's, so June's invoice has it
        ("Asia/Tokyo", "1488.00"),
    ],
)
def test_who_paid_for_an_issued_month_did_so_wherever_the_tenant_goes(
    lab: Tenant, cluster: Cluster, plan: Plan, zone: str, may: str
) -> None:
    """From April on the institute pays; what the lab used in March's last hour stays the lab's."""
    institute = a_tenant("institute", plan=plan, plan_from=MARCH, timezone="Europe/Berlin")
    ingest(cluster, a_job(started="2026-03-31 21:00", ended="2026-03-31 22:00"))
    ingest(cluster, a_job(started="2026-03-31 22:00", ended="2026-03-31 23:00"))
    third_party_payers.pay_for(payer=institute, tenant=lab, since=APRIL)
    engine.rate_tenants([lab])
    closed("2026-03", institute)
    assert closed("2026-04", institute).total.text == "1490.00"  # type: ignore[union-attr]
    assert closed("2026-04", lab).total.text == "2.00"  # type: ignore[union-attr]
    rated = RatedUsage.objects.count()
    moves(lab, zone)
    assert RatedUsage.objects.count() == rated
    assert closed("2026-05", institute).total.text == may  # type: ignore[union-attr]
    assert prove()["billed"] == hours(4)


def test_what_a_tenant_was_billed_for_its_last_day_stays_frozen_after_a_move(lab: Tenant, plan: Plan) -> None:
    moves(lab, "Pacific/Kiritimati")
    fee = version_terms.set_fee(
        version=plan.versions.get(),
        name="Base fee",
        amount=Decimal(300),
        tenant=lab,
        valid_from=date(2026, 5, 31),
    )
    for month in ("2026-04", "2026-05"):
        closed(month, lab)
    assert InvoiceLine.objects.filter(term_id=fee.pk).exists()
    moves(lab, "Pacific/Niue")
    with pytest.raises(PlanError, match="was billed by its own Base fee"):
        version_terms.drop_term(term=fee)
