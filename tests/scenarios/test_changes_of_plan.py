"""Flat fees, and what becomes of them when a tenant changes its plan or leaves it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.db import DatabaseError, transaction
from django.db.models import ProtectedError

from billing.catalog import subscriptions, version_terms
from billing.catalog.plans import PlanError
from billing.documents.build import document_of
from billing.invoicing import statements
from billing.models import BillingPeriod, Fee, Invoice, PlanVersion
from billing.rating import engine
from billing.rules.meters import PerUnit
from tests.builders import a_job, a_tenant, at, ingest
from tests.on_terms import a_lab, billed, used
from tests.stories import close, closed, invoice_of, lines_of, prove, total
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


def a_fee(amount: str, name: str, *, in_advance: bool = False) -> PlanVersion:
    version = a_version(TWO_DOLLARS, name=name)
    version_terms.set_fee(
        version=version, name=f"Base fee {name}", amount=Decimal(amount), in_advance=in_advance
    )
    return version


def test_a_flat_fee_is_billed_without_any_use_and_the_document_says_so() -> None:
    _, vision = a_lab(a_fee("99", "flat"))
    closed("2026-03", vision)
    assert billed(vision, "2026-03") == [("2026-03", "Base fee flat", "99.00")]
    (line,) = document_of(Invoice.objects.get()).lines
    assert (line.quantity, line.unit, line.unit_price, line.amount) == ("", "", "", "$99.00")
    assert line.detail == "$99.00 per period"
    assert closed("2026-03", vision).outcome == "already issued"
    prove()


def test_a_fee_in_advance_is_billed_before_its_period_and_once() -> None:
    _, vision = a_lab(a_fee("100", "ahead", in_advance=True))
    closed("2026-03", vision)
    closed("2026-04", vision)
    assert billed(vision, "2026-03") == [
        ("2026-03", "Base fee ahead", "100.00"),
        ("2026-04", "Base fee ahead", "100.00"),
    ]
    assert billed(vision, "2026-04") == [("2026-05", "Base fee ahead", "100.00")]
    assert not any(line.correction for line in lines_of(invoice_of(vision, "2026-03")))


def test_case_043_an_upgrade_in_mid_period_credits_the_rest_of_the_old_fee_by_seconds() -> None:
    small, large = a_fee("93", "small", in_advance=True), a_fee("310", "large", in_advance=True)
    cluster, vision = a_lab(small)
    close("2026-03", vision)
    subscriptions.subscribe(tenant=vision, plan=large.plan, since=at("2026-04-11"))  # 10 of 30 days
    ingest(cluster, a_job(started="2026-04-10 22:00", ended="2026-04-11 02:00"))

    closed("2026-04", vision)

    assert billed(vision, "2026-04") == [
        ("2026-04", "GPU time", "4.00"),  # two hours at the old plan's price, two at the new one's
        ("2026-04", "GPU time", "4.00"),
        ("2026-04", "Base fee small", "-62.00"),
        ("2026-04", "Base fee large", "206.67"),
        ("2026-05", "Base fee large", "310.00"),
    ]
    prove()


def test_case_044_a_downgrade_that_is_withdrawn_before_it_comes_changes_nothing() -> None:
    large, small = a_fee("310", "large"), a_fee("93", "small")
    _, vision = a_lab(large)
    downgrade = subscriptions.subscribe(tenant=vision, plan=small.plan, since=at("2026-04-01"))
    subscriptions.withdraw(subscription=downgrade)
    closed("2026-03", vision)
    closed("2026-04", vision)
    assert billed(vision, "2026-04") == [("2026-04", "Base fee large", "310.00")]
    assert [(subscription.plan.name, subscription.until) for subscription in vision.subscriptions.all()] == [
        ("large", None)
    ]


def test_case_045_up_down_and_up_again_in_a_day_bills_each_fee_once_for_its_seconds() -> None:
    small, large = a_fee("31", "small"), a_fee("744", "large")
    _, vision = a_lab(small)
    subscriptions.subscribe(tenant=vision, plan=large.plan, since=at("2026-03-10 06:00"))
    subscriptions.subscribe(tenant=vision, plan=small.plan, since=at("2026-03-10 12:00"))
    subscriptions.subscribe(tenant=vision, plan=large.plan, since=at("2026-03-10 18:00"))
    closed("2026-03", vision)
    assert billed(vision, "2026-03") == [
        ("2026-03", "Base fee small", "9.50"),  # 9.5 days
        ("2026-03", "Base fee large", "516.00"),  # 21.5 days, of 24.00 each
    ]
    prove()


def test_case_046_a_plan_that_is_left_on_its_first_day_costs_the_part_that_was_used() -> None:
    _, vision = a_lab(a_fee("744", "large"))
    subscriptions.unsubscribe(tenant=vision, at=at("2026-03-01 06:00"))
    closed("2026-03", vision)
    assert billed(vision, "2026-03") == [("2026-03", "Base fee large", "6.00")]
    assert closed("2026-04", vision).outcome == "nothing to bill"


def test_case_047_use_on_the_day_of_leaving_is_billed_until_the_instant() -> None:
    cluster, vision = a_lab(a_fee("744", "large"))
    ingest(cluster, a_job(started="2026-03-15 08:00", ended="2026-03-15 14:00"))
    subscriptions.unsubscribe(tenant=vision, at=at("2026-03-15 12:00"))
    engine.rate_tenants([vision])
    assert "No price covers 2.00 GPU-hours" in closed("2026-03", vision).reason
    ingest(cluster, a_job(account="other"))

    subscriptions.subscribe(
        tenant=vision, plan=a_version(PerUnit(Decimal(0)), name="free").plan, since=at("2026-03-15 12:00")
    )
    engine.rate_tenants([vision])
    closed("2026-03", vision)
    assert billed(vision, "2026-03") == [
        ("2026-03", "GPU time", "8.00"),  # 08:00 to 12:00
        ("2026-03", "GPU time", "0.00"),
        ("2026-03", "Base fee large", "348.00"),  # 14.5 of 31 days
    ]


def test_case_048_a_start_that_is_backdated_into_a_closed_period_is_a_correction() -> None:
    free = a_version(PerUnit(Decimal(0)), name="free")
    cluster, vision = a_lab(free)
    used(cluster, 1)
    closed("2026-03", vision)
    before = invoice_of(vision, "2026-03")
    subscriptions.subscribe(tenant=vision, plan=a_fee("310", "large").plan, since=at("2026-03-22"))
    engine.rate_tenants([vision])
    closed("2026-04", vision)
    assert billed(vision, "2026-04") == [
        ("2026-04", "Base fee large", "310.00"),
        ("2026-03", "Base fee large", "100.00"),  # 10 of 31 days
    ]
    assert lines_of(invoice_of(vision, "2026-04"))[1].correction
    assert total(before) == total(invoice_of(vision, "2026-03")) == "0.00"
    prove()


def test_case_049_a_plan_in_use_is_not_deleted() -> None:
    version = a_fee("99", "flat")
    cluster, vision = a_lab(version)
    used(cluster, 1)
    closed("2026-03", vision)
    with pytest.raises(ProtectedError):
        version.plan.delete()
    with pytest.raises(DatabaseError, match="in use"), transaction.atomic():
        Fee.objects.get().delete()


def test_case_050_a_used_version_is_followed_by_another_and_old_invoices_come_out_the_same() -> None:
    version = a_fee("100", "flat")
    cluster, vision = a_lab(version)
    used(cluster, 1)
    closed("2026-03", vision)
    with pytest.raises(PlanError, match="new version with a later `from`"):
        version_terms.set_fee(version=version, name="Base fee flat", amount=Decimal(120))
    with pytest.raises(PlanError, match="new version"):
        version_terms.set_allowance(version=version, name="Included hours", hours=Decimal(5))

    following = a_version(TWO_DOLLARS, name="flat", effective_from=date(2026, 4, 1))
    version_terms.set_fee(version=following, name="Base fee flat", amount=Decimal(120))
    engine.rate_tenants([vision])

    march = BillingPeriod.objects.get(tenant=vision, start=at("2026-03-01"))
    assert statements.make_statement(tenant=vision, period=march).lines == []
    closed("2026-04", vision)
    assert billed(vision, "2026-04") == [("2026-04", "Base fee flat", "120.00")]


def test_another_tenants_plan_costs_nobody_else_anything() -> None:
    cluster, _ = a_lab(a_fee("99", "flat"))
    audio = a_tenant("audio-lab", plan=a_version(TWO_DOLLARS).plan, accounts=[(cluster, "audio")])
    used(cluster, 10, "audio")
    closed("2026-03", audio)
    assert billed(audio, "2026-03") == [("2026-03", "GPU time", "20.00")]
