"""A fee or a commitment is taken back for what is past, whether or not anything was used then."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from billing.catalog import subscriptions, third_party_payers, version_terms
from billing.invoicing import offboarding
from billing.models import Invoice, Plan
from billing.rating import engine
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_person, a_tenant, at, ingest, own
from tests.on_terms import billed
from tests.paying import pays
from tests.stories import close, prove
from tests.terms import TWO_DOLLARS, a_version
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db

FIRST = date(2026, 1, 1)


def a_plan_with(name: str, *, fee: str = "", commitment: str = "", in_advance: bool = False) -> Plan:
    version = a_version(TWO_DOLLARS, name=name)
    if fee:
        version_terms.set_fee(version=version, name="Access", amount=Decimal(fee), in_advance=in_advance)
    if commitment:
        version_terms.set_commitment(version=version, amount=Decimal(commitment))
    return version.plan


def a_lab_on(plan: Plan, corrections: str = "credit-note") -> Tenant:
    lab = a_tenant("vision", plan=plan, plan_from=FIRST, corrections=corrections)
    own(lab, a_cluster(complete_through="2026-12-01"), "vision")
    return lab


def total(tenant: Tenant) -> Decimal:
    """Of all documents that stand."""
    rows = Invoice.objects.issued().filter(tenant=tenant)
    return sum((Decimal(row.total) / 100 for row in rows), Decimal(0))


def close_all(*months: str) -> None:
    for month in months:
        close(month)


def leaves(since: str) -> Callable[[Tenant], object]:
    return lambda lab: offboarding.end_services(tenant=lab, at=at(since))


def goes_to_a_plan_without(since: str) -> Callable[[Tenant], object]:
    return lambda lab: subscriptions.subscribe(tenant=lab, plan=a_plan_with("plain"), since=at(since))


@pytest.mark.parametrize(
    ("terms", "change", "left"),
    [
        ({"fee": "100"}, leaves("2026-02-01"), "100"),
        ({"fee": "100"}, goes_to_a_plan_without("2026-02-01"), "100"),
        ({"fee": "100"}, goes_to_a_plan_without("2026-01-01"), "0"),
        ({"fee": "100", "in_advance": True}, leaves("2026-03-01"), "200"),
        ({"commitment": "500"}, leaves("2026-02-01"), "500"),
        ({"commitment": "500"}, goes_to_a_plan_without("2026-03-01"), "1000"),
    ],
)
def test_what_was_billed_for_a_term_that_no_longer_holds_then_comes_back(
    terms: dict[str, Any], change: Callable[[Tenant], object], left: str
) -> None:
    lab = a_lab_on(a_plan_with("committed", **terms))
    close_all("2026-01", "2026-02", "2026-03")
    change(lab)
    engine.rate_tenants([lab])  # nothing was used: rating changes nothing

    close_all("2026-04", "2026-05")

    assert total(lab) == Decimal(left)
    before = Invoice.objects.count()
    close_all("2026-06")
    assert Invoice.objects.count() == before  # once
    prove()


def test_a_plan_that_is_replaced_from_its_first_day_takes_its_fee_of_an_unused_month_along() -> None:
    lab = a_lab_on(a_plan_with("committed", fee="100"), "next-invoice")
    close("2026-01")
    subscriptions.subscribe(tenant=lab, plan=a_plan_with("plain"), since=at("2026-01-01"))
    ingest(a_cluster(), a_job(started="2026-02-10 00:00", ended="2026-02-20 00:00"))
    ann = signed_in(a_person(tenant=lab))  # whose transactions see plans that she is on alone

    draft = ann.get("/t/vision/exports/focus?period=2026-02&format=csv")
    rows = list(csv.DictReader(b"".join(draft).decode().splitlines()))
    assert [
        (row["ChargeDescription"], row["BilledCost"]) for row in rows if "Access" in row["ChargeDescription"]
    ] == [("Access", "-100.00")]
    assert ann.get("/t/vision/").status_code == 200
    close("2026-02")

    assert billed(lab, "2026-02") == [("2026-02", "GPU time", "480.00"), ("2026-01", "Access", "-100.00")]
    prove()


@pytest.mark.parametrize(("ended", "left"), [("2026-01-01", "0"), ("2026-02-01", "100")])
def test_a_fee_is_the_tenants_again_and_no_longer_its_payers_where_that_one_never_paid(
    ended: str, left: str
) -> None:
    lab = a_lab_on(a_plan_with("committed", fee="100"))
    parent = a_tenant("physics", corrections="credit-note")
    row = pays(parent, lab, "2026-01-01")
    close_all("2026-01", "2026-02", "2026-03")
    assert [total(parent), total(lab)] == [Decimal(300), Decimal(0)]

    third_party_payers.end_payer(row=row, on=date.fromisoformat(ended))
    engine.rate_tenants([lab])
    close_all("2026-04", "2026-05")

    assert (total(parent), total(lab)) == (Decimal(left), 500 - Decimal(left))
    prove()
