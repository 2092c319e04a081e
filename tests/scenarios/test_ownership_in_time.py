"""Whose account it was, then: every second has one owner or none, and nothing is dropped meanwhile."""

from __future__ import annotations

from datetime import date

import pytest
from django.db import IntegrityError, connection, transaction

from billing.models import RatedJob, RatedUsage
from billing.rating import engine
from clusters.models import Account
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership
from portal.core.tenants.ownership import OwnershipConflictError
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.stories import closed, hours, invoice_of, printed, prove, seconds, total

pytestmark = pytest.mark.django_db


def test_a_job_is_split_between_its_owners_at_the_very_second() -> None:
    cluster, plan = a_cluster(), a_plan()
    vision, audio = (
        a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")]),
        a_tenant("audio-lab", plan=plan),
    )
    ingest(cluster, a_job(started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    assert seconds(vision) == 3600
    assert prove()["pending"] == 3600

    own(audio, cluster, "vision", since="2026-03-02 10:20:01")

    assert (seconds(vision), seconds(audio)) == (1201, 2399)
    assert prove()["pending"] == 3600
    assert {job.gpu_units for job in RatedJob.objects.all()} == {1201, 2399}


def test_case_018_usage_that_nobody_owns_is_kept_and_billed_for_its_own_period_once_it_is_assigned() -> None:
    cluster = a_cluster(complete_through="2026-05-01")
    vision = a_tenant(plan=a_plan())
    ingest(
        cluster,
        a_job(started="2026-02-27 10:00", ended="2026-02-27 12:00"),
        a_job(started="2026-03-02 10:00"),
    )
    parts = prove()
    assert (parts["allocated"], parts["unassigned"], parts["pending"]) == (hours(3), hours(3), 0)
    assert closed("2026-03", vision).outcome == "nothing to bill"

    own(vision, cluster, "vision")

    parts = prove()
    assert (parts["unassigned"], parts["pending"]) == (0, hours(3))
    assert closed("2026-02", vision).total.text == "4.00"  # type: ignore[union-attr]
    assert printed(invoice_of(vision, "2026-02")) == [("2026-02", "vision", "2", "4.00")]
    assert closed("2026-03", vision).outcome == "issued"
    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "1", "2.00")]
    assert prove()["billed"] == hours(3)


def test_an_account_taken_over_after_the_invoice_is_owed_by_the_new_owner_and_credited_to_the_old() -> None:
    cluster, plan = a_cluster(complete_through="2026-06-01"), a_plan()
    vision, audio = (
        a_tenant("vision-lab", plan=plan, accounts=[(cluster, "shared")]),
        a_tenant("audio-lab", plan=plan),
    )
    own(vision, cluster, "vision")
    march = {"started": "2026-03-20 00:00", "ended": "2026-03-20 10:00"}
    april = {"started": "2026-04-20 00:00", "ended": "2026-04-20 20:00"}
    ingest(
        cluster,
        a_job(account="shared", **march),
        a_job(account="vision", **march),
        a_job(account="vision", **april),
    )
    assert closed("2026-03", vision).total.text == "40.00"  # type: ignore[union-attr]
    bytes_before = list(invoice_of(vision, "2026-03").lines.order_by("pk").values())
    prove()

    own(audio, cluster, "shared", since="2026-03-20 06:00")

    parts = prove()
    assert (parts["billed"], parts["pending"], parts["unassigned"]) == (hours(20), hours(20), 0)  # 20 − 4 + 4
    assert closed("2026-03", audio).total.text == "8.00"  # type: ignore[union-attr]
    assert printed(invoice_of(audio, "2026-03")) == [("2026-03", "shared", "4", "8.00")]
    assert closed("2026-04", vision).outcome == "issued"
    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "20", "40.00"),
        ("2026-03", "shared", "-4", "-8.00"),
    ]
    assert total(invoice_of(vision, "2026-04")) == "32.00"
    assert list(invoice_of(vision, "2026-03").lines.order_by("pk").values()) == bytes_before
    assert prove()["billed"] == hours(40)


def test_projects_of_one_tenant_have_lines_of_their_own() -> None:
    cluster = a_cluster(complete_through="2026-05-01")
    vision = a_tenant(plan=a_plan())
    own(vision, cluster, "vision", project="perception", until="2026-03-02 10:30")
    own(vision, cluster, "vision", project="robotics", since="2026-03-02 10:30")
    ingest(cluster, a_job())

    closed("2026-03", vision)

    assert printed(invoice_of(vision, "2026-03")) == [
        ("2026-03", "perception", "1/2", "1.00"),
        ("2026-03", "robotics", "1/2", "1.00"),
    ]


def test_an_account_that_was_nobodys_for_a_while_can_be_owned_again() -> None:
    cluster, plan = a_cluster(), a_plan()
    vision, audio = (
        a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")]),
        a_tenant("audio-lab", plan=plan),
    )
    ingest(cluster, a_job(started="2026-03-20 00:00", ended="2026-03-20 10:00"))

    Ownership.objects.update(until=at("2026-03-10"))
    engine.rate_tenants([vision])
    assert prove()["unassigned"] == hours(10)
    assert not RatedJob.objects.exists()

    own(audio, cluster, "vision", since="2026-03-10")
    assert (seconds(vision), seconds(audio), prove()["unassigned"]) == (0, hours(10), 0)
    assert RatedJob.objects.get().tenant == audio


def test_the_same_assignment_twice_is_one_and_rates_nothing_anew() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())

    own(vision, cluster, "vision")

    assert Ownership.objects.count() == 1
    assert RatedUsage.objects.count() == 1


def test_two_owners_at_one_moment_are_refused_by_name_and_by_the_database() -> None:
    cluster, plan = a_cluster(), a_plan()
    vision = a_tenant("vision-lab", plan=plan)
    own(vision, cluster, "vision", since="2026-03-01")
    audio = a_tenant("audio-lab", plan=plan)
    account = Account.objects.get()

    with pytest.raises(OwnershipConflictError, match="belongs to vision-lab since 2026-03-01 00:00 UTC"):
        ownership.assign(account=account, tenant=audio)
    existing = Ownership.objects.get()
    with pytest.raises(IntegrityError, match="account_has_one_owner_at_a_time"), transaction.atomic():
        Ownership.objects.create(
            account=account, tenant=audio, project=existing.project, since=at("2026-05-01")
        )
    with pytest.raises(IntegrityError, match="ownership_ends_after_it_starts"), transaction.atomic():
        Ownership.objects.create(
            account=Account.objects.create(cluster=cluster, name="other"), tenant=audio, project=existing.project,
            since=at("2026-05-01"), until=at("2026-05-01"),
        )  # fmt: skip


def test_case_013_a_waiting_job_and_one_of_no_length_are_seen_and_have_no_line() -> None:
    """Quantity 0: they stand among the jobs of their owner, and cost nothing."""
    cluster = a_cluster(complete_through="2026-05-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(
        cluster,
        a_job(job_id="1", ended="2026-03-02 10:00", state="FAILED"),
        a_job(job_id="2", started=None, ended=None, submitted="2026-03-02 10:00", state="PENDING"),
    )

    assert list(RatedJob.objects.order_by("job_id").values_list("job_id", "gpu_units")) == [
        ("1", 0),
        ("2", 0),
    ]
    assert RatedUsage.objects.count() == 0
    assert closed("2026-03", vision).outcome == "nothing to bill"


def test_a_tenant_that_ends_its_plan_and_account_the_same_day_pays_until_then() -> None:
    cluster = a_cluster(complete_through="2026-05-01")
    vision = a_tenant(plan=a_plan(effective_from=date(2026, 3, 1)), plan_from=date(2026, 3, 1))
    own(vision, cluster, "vision", until="2026-03-02 10:30")
    ingest(cluster, a_job())

    assert closed("2026-03", vision).total.text == "1.00"  # type: ignore[union-attr]
    assert prove()["unassigned"] == 1800


def test_the_ownership_borders_are_rounded_to_seconds_the_same_way_everywhere() -> None:
    cluster, plan = a_cluster(), a_plan()
    vision, audio = a_tenant("vision-lab", plan=plan), a_tenant("audio-lab", plan=plan)
    own(vision, cluster, "vision", until="2026-03-02 10:30:00.400000")
    own(audio, cluster, "vision", since="2026-03-02 10:30:00.400000")
    ingest(cluster, a_job())

    assert (seconds(vision), seconds(audio)) == (1800, 1800)
    prove()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM billing_ratedusage")
        assert cursor.fetchone() == (2,)
