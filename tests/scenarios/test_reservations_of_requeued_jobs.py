"""Ben's jobs are requeued, changed and asked for again: what stands under a key is the job that waits or runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from billing.admission import follow
from billing.admission.reserve import Array, release_key, take_turn
from billing.models import Reservation, ReservationEnd
from clusters.models import Cluster
from portal.core.events.models import Event, EventType
from portal.core.tenants.models import Tenant
from tests import builders
from tests.builders import a_cluster, a_plan, a_tenant, at
from tests.quota_stories import a_quota
from tests.scenarios.test_reservations import ACTS, figures, reserve, runs, task_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-03-05 12:00")


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    tenant = a_tenant("vision", plan=a_plan(), accounts=[(cluster, "vision")])
    a_quota(tenant, amount=Decimal(1000), **ACTS)
    return tenant


def follow_at(moment: str) -> follow.FollowTally:
    return follow.follow_reservations(moment=at(moment))


def test_quota_047_a_run_that_was_given_back_is_not_taken_for_the_run_of_the_requeued_job(
    vision: Tenant, cluster: Cluster
) -> None:
    reserve(cluster, job_id="77")
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00", ended=True)
    assert release_key(cluster=cluster, key="a", now=at("2026-03-05 13:01"))
    assert reserve(cluster, job_id="77", now=at("2026-03-05 13:02")).reservation is not None
    assert follow_at("2026-03-05 13:03").ended == 0
    assert figures(vision, at("2026-03-05 13:03")) == ["16", "96", "888"]


def test_quota_047_a_job_that_waits_again_in_the_pull_that_shows_its_end_is_held_on(
    vision: Tenant, cluster: Cluster
) -> None:
    reserve(cluster, job_id="77")
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00")
    follow_at("2026-03-05 13:00")
    waits: dict[str, Any] = {
        "started": None,
        "ended": None,
        "submitted": "2026-03-05 13:10",
        "state": "PENDING",
    }
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:10", ended=True)
    builders.ingest(cluster, builders.a_job(job_id="77", gpus=8, **waits), as_of="2026-03-05 13:15")
    assert follow_at("2026-03-05 13:15").ended == 0
    assert figures(vision, at("2026-03-05 13:15"))[1] == "96"
    runs(cluster, "77", "2026-03-05 13:20", "2026-03-05 14:20", submitted="2026-03-05 13:10")
    follow_at("2026-03-05 14:20")
    assert figures(vision, at("2026-03-05 14:20"))[1] == "80"
    runs(cluster, "77", "2026-03-05 13:20", "2026-03-05 14:30", submitted="2026-03-05 13:10", ended=True)
    assert follow_at("2026-03-05 14:30").ended == 1


def test_quota_051_a_task_that_is_requeued_is_one_task(vision: Tenant, cluster: Cluster) -> None:
    reserve(cluster, 1, 1, array=Array(2), job_id="90")
    again = {"ended": None, "seen_until": "2026-03-05 12:30", "state": "RUNNING"}
    tasks = [
        task_of(1, ended="2026-03-05 12:10", state="NODE_FAIL"),
        replace(task_of(1, **again), source_key="91@2"),
        task_of(2, ended="2026-03-05 12:30"),
    ]
    builders.ingest(cluster, *tasks, as_of="2026-03-05 12:30")
    assert follow_at("2026-03-05 12:30").ended == 0
    assert figures(vision, at("2026-03-05 12:30"))[1] == "1"  # half an hour of the first


def test_quota_047_another_time_limit_keeps_the_jobs_id_and_another_job_takes_its_place_whole(
    vision: Tenant, cluster: Cluster
) -> None:
    reserve(cluster, job_id="77")
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00")
    follow_at("2026-03-05 13:00")
    row = reserve(cluster, 5, now=at("2026-03-05 13:00")).reservation
    assert row is not None
    assert (row.job_id, row.expires_at) == ("77", None)
    reserve(cluster, 2, job_id="78", now=at("2026-03-05 13:00"))
    assert figures(vision, at("2026-03-05 13:00")) == ["16", "32", "952"]
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:30", ended=True)
    assert follow_at("2026-03-05 13:30").ended == 0
    assert figures(vision, at("2026-03-05 13:30"))[1] == "32"


def test_quota_048_what_lapsed_is_told_where_its_key_is_asked_for_again_before_a_pass(
    vision: Tenant, cluster: Cluster
) -> None:
    reserve(cluster)
    reserve(cluster, now=at("2026-03-05 12:16"))
    assert follow_at("2026-03-05 12:16").lapsed == 0
    assert [row.end for row in Reservation.objects.order_by("pk")] == [ReservationEnd.NEVER_CAME, ""]
    lapsed = Event.objects.filter(type=EventType.QUOTA_RESERVATION_LAPSED)
    assert [event.state for event in lapsed] == ["never-came"]


def test_quota_047_a_pass_releases_nothing_that_was_reserved_for_another_job_meanwhile(
    vision: Tenant, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(cluster, job_id="77")
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00", ended=True)

    def slowly(*args: Any) -> None:
        monkeypatch.undo()
        reserve(cluster, 5, job_id="78", now=at("2026-03-05 13:01"))
        take_turn(*args)

    monkeypatch.setattr("billing.admission.follow.take_turn", slowly)
    assert follow_at("2026-03-05 13:01").ended == 0
    assert figures(vision, at("2026-03-05 13:01")) == ["16", "80", "904"]
