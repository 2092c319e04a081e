"""A tenant whose usage goes on the invoices of another one for a time."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.db import DatabaseError, transaction

from billing.catalog import plans, subscriptions, third_party_payers, version_terms
from billing.catalog.third_party_payers import PayerError
from billing.models import Invoice, Payer, PlanVersion
from billing.rating import engine
from clusters.models import Cluster
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.history import history
from tests.on_terms import billed, used
from tests.paying import pays
from tests.stories import close, closed, hours, invoice_of, lines_of, printed, prove, total
from tests.terms import GRADUATED, TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-09-01")


@pytest.fixture
def standard() -> PlanVersion:
    return a_version(TWO_DOLLARS)


@pytest.fixture
def physics(standard: PlanVersion, cluster: Cluster) -> Tenant:
    """The faculty, which has jobs of its own."""
    return a_tenant("physics", name="Physics", plan=standard.plan, accounts=[(cluster, "physics")])


@pytest.fixture
def vision(standard: PlanVersion, cluster: Cluster) -> Tenant:
    return a_tenant("vision-lab", plan=standard.plan, accounts=[(cluster, "vision")])


def test_case_064_a_parent_pays_for_its_child_and_what_was_billed_before_stays_with_who_paid_then(
    cluster: Cluster, physics: Tenant, vision: Tenant, standard: PlanVersion
) -> None:
    used(cluster, 10)  # in March
    close("2026-03")
    before = total(invoice_of(vision, "2026-03"))
    chemistry = a_tenant("chemistry", name="Chemistry", plan=standard.plan)
    pays(physics, vision, "2026-04-01")
    pays(chemistry, vision, "2026-04-16")  # in mid-month
    ingest(
        cluster,
        a_job(started="2026-04-10 10:00", ended="2026-04-10 13:00"),
        a_job(started="2026-04-15 20:00", ended="2026-04-16 05:00"),  # across the day on which it changes
        a_job(account="physics", started="2026-04-10 10:00", ended="2026-04-10 11:00"),
    )

    outcomes = {one.tenant: one.outcome.value for one in close("2026-04")}

    assert before == "20.00"
    assert total(invoice_of(vision, "2026-03")) == "20.00"
    assert printed(invoice_of(physics, "2026-04")) == [
        ("2026-04", "physics", "1", "2.00"),
        ("2026-04", "Vision Lab: vision", "7", "14.00"),  # three hours, and four before midnight
    ]
    assert printed(invoice_of(chemistry, "2026-04")) == [("2026-04", "Vision Lab: vision", "5", "10.00")]
    assert not any(line.correction for line in lines_of(invoice_of(chemistry, "2026-04")))
    assert not Invoice.objects.filter(tenant=vision, period_start__gte=at("2026-04-01")).exists()
    assert outcomes == {"chemistry": "issued", "physics": "issued", "vision-lab": "nothing to bill"}
    assert prove()["billed"] == hours(10 + 13)


def test_what_is_known_late_goes_to_who_paid_for_it_then(
    cluster: Cluster, physics: Tenant, vision: Tenant
) -> None:
    pays(physics, vision, "2026-03-01", "2026-04-01")
    used(cluster, 3)
    close("2026-03")
    ingest(cluster, a_job(started="2026-03-30 10:00", ended="2026-03-30 12:00"))  # known late
    used(cluster, 1, day="2026-04-20")

    close("2026-04")

    assert printed(invoice_of(physics, "2026-03")) == [("2026-03", "Vision Lab: vision", "3", "6.00")]
    assert printed(invoice_of(physics, "2026-04")) == [("2026-03", "Vision Lab: vision", "2", "4.00")]
    assert [line.correction for line in lines_of(invoice_of(physics, "2026-04"))] == [True]
    assert printed(invoice_of(vision, "2026-04")) == [("2026-04", "vision", "1", "2.00")]
    assert prove()["pending"] == 0


@pytest.mark.parametrize("policy", [Corrections.CREDIT_NOTE, Corrections.NEXT_INVOICE])
def test_a_payer_for_what_was_billed_already_credits_the_child_and_debits_the_payer(
    cluster: Cluster, physics: Tenant, vision: Tenant, policy: Corrections
) -> None:
    Tenant.objects.update(corrections=policy)
    used(cluster, 5)
    close("2026-03")
    pays(physics, vision, "2026-03-01", "2026-04-01")
    used(cluster, 6, day="2026-04-20")

    assert prove()["pending"] == hours(6)  # what was billed to the one is pending for the other
    close("2026-04")

    documents = Invoice.objects.filter(tenant=vision).order_by("pk")
    assert total(invoice_of(physics, "2026-04")) == "10.00"
    assert printed(invoice_of(physics, "2026-04")) == [("2026-03", "Vision Lab: vision", "5", "10.00")]
    shown = [(document.kind, total(document)) for document in documents]
    if policy == Corrections.CREDIT_NOTE:
        assert sorted(shown) == [("credit-note", "-10.00"), ("invoice", "10.00"), ("invoice", "12.00")]
    else:
        assert shown == [("invoice", "10.00"), ("invoice", "2.00")]
    assert prove()["billed"] == hours(5 + 6)


def test_a_payer_that_is_taken_back_before_the_close_leaves_nothing_behind(
    cluster: Cluster, physics: Tenant, vision: Tenant
) -> None:
    row = pays(physics, vision, "2026-03-01")
    used(cluster, 5)
    third_party_payers.end_payer(row=row, on=date(2026, 3, 1))
    engine.rate_tenants([vision])

    close("2026-03")

    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "5", "10.00")]
    assert not Invoice.objects.filter(tenant=physics).exists()
    assert prove()["billed"] == hours(5)
    pays(physics, vision, "2026-03-01")  # after all
    used(cluster, 5, day="2026-04-20")
    close("2026-04")
    assert printed(invoice_of(physics, "2026-04")) == [
        ("2026-04", "Vision Lab: vision", "5", "10.00"),
        ("2026-03", "Vision Lab: vision", "5", "10.00"),
    ]
    sums = prove()
    assert (sums["billed"], sums["pending"]) == (
        hours(15),
        -hours(5),
    )  # its credit waits for its next invoice


def test_tiers_fees_and_included_hours_are_the_childs_and_hold_for_each_payers_time_apart(
    cluster: Cluster, physics: Tenant
) -> None:
    version = a_version(GRADUATED, name="steps", allowance="30")
    version_terms.set_fee(version=version, name="Base fee", amount=Decimal(300), in_advance=False)
    vision = a_tenant(plan=version.plan, plan_from=date(2026, 4, 1), accounts=[(cluster, "vision")])
    pays(physics, vision, "2026-04-11")  # 20 of 30 days
    used(cluster, 115, day="2026-04-05")
    used(cluster, 125, day="2026-04-20")

    close("2026-04")

    assert billed(vision, "2026-04") == [
        ("2026-04", "GPU time", "312.50"),  # 10 of 115 are included: 100 at 3.00 and 5 at 2.50
        ("2026-04", "Base fee", "100.00"),
    ]
    assert billed(physics, "2026-04") == [
        ("2026-04", "GPU time", "312.50"),  # 20 of 125 are included
        ("2026-04", "Base fee", "200.00"),
    ]
    assert [line.project for line in lines_of(invoice_of(physics, "2026-04"))] == [
        "Vision Lab: vision",
        "Vision Lab",
    ]
    assert prove()["billed"] == hours(240)


def test_a_fee_that_was_billed_in_advance_goes_back_where_somebody_else_pays(
    cluster: Cluster, physics: Tenant
) -> None:
    version = a_version(TWO_DOLLARS, name="base")
    version_terms.set_fee(version=version, name="Base fee", amount=Decimal(60), in_advance=True)
    vision = a_tenant(plan=version.plan, plan_from=date(2026, 3, 1), accounts=[(cluster, "vision")])
    used(cluster, 1)
    close("2026-03")
    Tenant.objects.filter(pk=vision.pk).update(corrections=Corrections.CREDIT_NOTE)
    pays(physics, vision, "2026-04-16")

    close("2026-04")
    close("2026-05")

    assert billed(vision, "2026-03") == [
        ("2026-03", "GPU time", "2.00"),
        ("2026-03", "Base fee", "60.00"),
        ("2026-04", "Base fee", "60.00"),
    ]
    fees = [row for month in ("2026-04", "2026-05") for row in billed(physics, month)]
    assert fees == [
        ("2026-04", "Base fee", "30.00"),
        ("2026-05", "Base fee", "60.00"),
        ("2026-06", "Base fee", "60.00"),
    ]
    documents = Invoice.objects.filter(tenant=vision).order_by("pk")
    assert [total(document) for document in documents] == ["122.00", "-30.00"]
    prove()


def test_two_children_with_the_same_projects_stand_apart(
    cluster: Cluster, physics: Tenant, standard: PlanVersion
) -> None:
    for slug in ("lab-a", "lab-b"):
        child = a_tenant(slug, name="Lab", plan=standard.plan)
        own(child, cluster, slug, project="nlp")
        pays(physics, child, "2026-03-01")
    used(cluster, 1, "lab-a")
    used(cluster, 2, "lab-b")

    close("2026-03")

    assert printed(invoice_of(physics, "2026-03")) == [
        ("2026-03", "Lab (lab-a): nlp", "1", "2.00"),
        ("2026-03", "Lab (lab-b): nlp", "2", "4.00"),
    ]
    assert prove()["billed"] == hours(3)


def test_a_payer_in_another_zone_bills_a_childs_period_with_its_own_first_that_reaches_as_far(
    cluster: Cluster, standard: PlanVersion
) -> None:
    physics = a_tenant("physics", name="Physics", plan=standard.plan, timezone="Europe/Berlin", anchor_day=15)
    west = a_tenant("west", plan=standard.plan, timezone="America/Los_Angeles", accounts=[(cluster, "west")])
    pays(physics, west, "2026-03-01")
    ingest(
        cluster,
        a_job(account="west", started="2026-03-31 23:00", ended="2026-04-01 09:00"),  # 8 hours of March there
        a_job(account="west", started="2026-04-20 10:00", ended="2026-04-20 11:00"),
    )

    closed("2026-03", physics, on="2026-05-20")
    closed("2026-04", physics, on="2026-05-20")

    assert printed(invoice_of(physics, "2026-03")) == [("2026-03", "West: west", "8", "16.00")]
    assert printed(invoice_of(physics, "2026-04")) == [("2026-04", "West: west", "3", "6.00")]
    assert not any(line.correction for line in lines_of(invoice_of(physics, "2026-04")))
    assert prove()["billed"] == hours(11)


def test_a_job_that_changes_owner_is_billed_to_who_pays_for_each(
    cluster: Cluster, physics: Tenant, vision: Tenant, standard: PlanVersion
) -> None:
    audio = a_tenant("audio-lab", plan=standard.plan)
    pays(physics, audio, "2026-03-01")
    ingest(cluster, a_job(started="2026-03-10 00:00", ended="2026-03-10 10:00"))
    own(audio, cluster, "vision", since="2026-03-10 04:00")

    close("2026-03")

    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "4", "8.00")]
    assert printed(invoice_of(physics, "2026-03")) == [("2026-03", "Audio Lab: vision", "6", "12.00")]
    assert prove()["billed"] == hours(10)


def test_a_child_that_used_nothing_costs_nothing(cluster: Cluster, physics: Tenant, vision: Tenant) -> None:
    pays(physics, vision, "2026-03-01")
    outcomes = {one.tenant: one.outcome.value for one in close("2026-03")}
    assert outcomes == {"physics": "nothing to bill", "vision-lab": "nothing to bill"}


def test_the_payers_close_waits_for_the_clusters_and_prices_of_its_children(
    physics: Tenant, vision: Tenant
) -> None:
    late = a_cluster("gpu2", complete_through="2026-03-20")
    own(vision, late, "elsewhere")
    pays(physics, vision, "2026-03-01")
    blocked = closed("2026-03", physics)
    assert "gpu2 is complete through 2026-03-20" in blocked.reason

    late.complete_through = at("2026-04-02")
    late.save()
    subscriptions.unsubscribe(tenant=vision, at=at("2026-03-15"))
    ingest(late, a_job(account="elsewhere", started="2026-03-20 10:00", ended="2026-03-20 11:00"))
    blocked = closed("2026-03", physics)
    assert "No price covers 1.00 GPU-hours on a100" in blocked.reason
    assert closed("2026-03", vision).outcome.value == "nothing to bill"


def test_who_pays_is_refused_in_words(physics: Tenant, vision: Tenant, standard: PlanVersion) -> None:
    chemistry = a_tenant("chemistry", plan=standard.plan)
    euros = a_tenant("euros", plan=a_plan("euros", "EUR"))
    pays(physics, vision, "2026-04-01", "2026-07-01")
    for payer, tenant, since, sentence in (
        (
            vision,
            chemistry,
            "2026-05-01",
            "physics pays for vision-lab from 2026-04-01 on, so vision-lab cannot pay",
        ),
        (chemistry, physics, "2026-05-01", "so chemistry cannot pay for physics then"),
        (vision, vision, "2026-08-01", "vision-lab pays for itself"),
        (
            euros,
            vision,
            "2026-08-01",
            "is on a plan in USD and euros, which pays for it from 2026-08-01 on, in EUR",
        ),
        (chemistry, vision, "2026-03-01", "physics pays for vision-lab from 2026-04-01 on: end that first"),
    ):
        with pytest.raises(PayerError, match=sentence):
            pays(payer, tenant, since)
    with pytest.raises(PayerError, match="until 2026-03-01, no later than from 2026-04-01"):
        pays(physics, vision, "2026-04-01", "2026-03-01")
    pays(chemistry, physics, "2026-07-01")  # when it pays for nobody any more
    with pytest.raises(PayerError, match="who pays for others has no payer"):
        pays(physics, vision, "2026-04-01", "2026-08-01")
    assert Payer.objects.count() == 2


def test_the_database_keeps_one_payer_at_a_time_one_step_away_for_ever(
    physics: Tenant, vision: Tenant
) -> None:
    row = pays(physics, vision, "2026-04-01")
    day = {"since": date(2026, 5, 1)}
    for wrong in (
        lambda: Payer.objects.create(tenant=vision, payer=physics, **day),
        lambda: Payer.objects.create(tenant=physics, payer=vision, **day),
        lambda: Payer.objects.create(tenant=vision, payer=vision, **day),
        lambda: Payer.objects.filter(pk=row.pk).update(until=date(2026, 3, 1)),
        lambda: Payer.objects.filter(pk=row.pk).update(since=date(2026, 3, 1)),
        row.delete,
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            wrong()
    assert Payer.objects.count() == 1


def test_a_plan_of_another_currency_is_refused_while_somebody_pays(physics: Tenant, vision: Tenant) -> None:
    pays(physics, vision, "2026-04-01")
    euros = a_plan("euros", "EUR")
    for tenant in (vision, physics):
        with pytest.raises(plans.PlanError, match="an invoice has one currency"):
            subscriptions.subscribe(tenant=tenant, plan=euros, since=at("2026-05-01"))


def test_asked_again_nothing_changes(physics: Tenant, vision: Tenant) -> None:
    row = pays(physics, vision, "2026-04-01")
    assert pays(physics, vision, "2026-05-01") == row
    assert (row.since, row.until) == (date(2026, 4, 1), None)
    assert third_party_payers.end_payer(row=row, on=date(2026, 6, 1)) == third_party_payers.end_payer(
        row=row, on=date(2026, 6, 1)
    )
    assert [str(payer) for payer in Payer.objects.all()] == ["Physics for Vision Lab"]


def test_what_was_said_before_changes_nothing_when_it_is_said_again_later(
    physics: Tenant, vision: Tenant, standard: PlanVersion
) -> None:
    chemistry = a_tenant("chemistry", plan=standard.plan)
    first = pays(physics, vision, "2026-04-01")
    pays(chemistry, vision, "2026-06-01")
    pays(chemistry, physics, "2026-07-01")

    assert pays(physics, vision, "2026-04-01") == first
    assert [str(payer.until) for payer in vision.payers.order_by("since")] == ["2026-06-01", "None"]


def test_a_payer_that_never_paid_forbids_nothing(physics: Tenant, vision: Tenant) -> None:
    euros = a_tenant("euros")
    row = pays(euros, vision, "2026-04-01")
    third_party_payers.end_payer(row=row, on=date(2026, 4, 1))
    subscriptions.subscribe(tenant=euros, plan=a_plan("euros", "EUR"), since=at("2026-03-01"))
    pays(physics, vision, "2026-04-01")
    assert [str(payer) for payer in Payer.objects.filter(until=None)] == ["Physics for Vision Lab"]


def test_the_history_says_who_changed_it(physics: Tenant, vision: Tenant) -> None:
    row = pays(physics, vision, "2026-04-01")
    third_party_payers.end_payer(row=row, on=date(2026, 6, 1))
    assert history(row, "until") == [("insert", None), ("update", "2026-06-01")]
