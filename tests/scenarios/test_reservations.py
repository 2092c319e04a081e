"""Ben's jobs are reserved for before they run: what they may still come to is held, shrinks, and is free again."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction

from billing.admission import follow
from billing.admission.reserve import Array, Placement, release_key, reserve_job, take_turn
from billing.models import (
    QuotaAction,
    QuotaBlock,
    QuotaChange,
    QuotaMeasure,
    Reservation,
    ReservationEnd,
)
from billing.quotas import review
from billing.quotas.status import QuotaStatus, load_statuses
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.events.models import Event, EventType
from portal.core.tenants.models import Tenant
from tests import builders
from tests.builders import a_cluster, a_plan, a_tenant, at
from tests.quota_stories import a_quota, spend

pytestmark = pytest.mark.django_db

NOW = at("2026-03-05 12:00")
ACTS: dict[str, Any] = {"action": QuotaAction.NO_GPU_JOBS}


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-03-05 12:00")


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return a_tenant("vision", plan=a_plan(), accounts=[(cluster, "vision")])


def reserve(
    cluster: Cluster,
    hours: float = 6,
    gpus: int = 8,
    key: str = "a",
    *,
    now: datetime = NOW,
    array: Array | None = None,
    job_id: str = "",
    **fields: Any,
) -> Placement:
    begin = int(now.timestamp())
    job = builders.a_job(**{"gpus": gpus, "started": begin, "ended": begin + int(hours * 3600)} | fields)
    placement = reserve_job(cluster=cluster, key=key, job=job, array=array or Array(), job_id=job_id, now=now)
    assert placement is not None
    return placement


def status(tenant: Tenant, moment: datetime = NOW) -> QuotaStatus:
    (one,) = load_statuses(list(tenant.quotas.select_related("tenant", "project")), moment=moment)
    return one


def figures(tenant: Tenant, moment: datetime = NOW) -> list[str]:
    one = status(tenant, moment)
    assert one.figure.used + one.figure.reserved + one.left == one.amount  # 100 %
    return [str(value) for value in (one.figure.used, one.figure.reserved, one.left)]


def runs(cluster: Cluster, job: str, since: str, until: str, *, ended: bool = False, **fields: Any) -> None:
    """A job of 8 GPUs, $16.00 an hour, as a pull at `until` reads it."""
    end = (
        {"ended": until, "state": "COMPLETED"}
        if ended
        else {"ended": None, "seen_until": until, "state": "RUNNING"}
    )
    row = builders.a_job(**{"job_id": job, "gpus": 8, "submitted": since, "started": since, **end, **fields})
    builders.ingest(cluster, row, as_of=until)
    cluster.refresh_from_db()


def task_of(number: int, **fields: Any) -> UsageFact:
    """A task of array 90, of one GPU from noon on."""
    noon = "2026-03-05 12:00"
    return builders.a_job(
        job_id=f"90_{number}", source_key=f"{90 + number}@1", submitted=noon, started=noon, **fields
    )


def test_quota_046_the_worst_case_is_held_and_what_does_not_fit_is_refused(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(100), **ACTS)
    assert reserve(cluster).reservation is not None  # 8 × 2.00 × 6 h
    assert figures(vision) == ["0", "96", "4"]
    second = reserve(cluster, 4, 1, "b")  # 8.00
    assert second.reservation is None
    assert second.check is not None
    assert [need.longest for need in second.check.refusing] == [2 * 3600]
    assert figures(vision) == ["0", "96", "4"]
    assert reserve(cluster, 2, 1, "b").reservation is not None
    assert figures(vision) == ["0", "100", "0"]


def test_quota_049_what_is_only_reserved_reaches_no_threshold_and_blocks_nobody(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(100), **ACTS)
    assert reserve(cluster).reservation is not None
    QuotaChange.objects.create(tenant=vision)
    assert review.review_quotas(moment=NOW).quotas == 1
    assert figures(vision) == ["0", "96", "4"]
    assert not Event.objects.filter(type=EventType.QUOTA_THRESHOLD).exists()
    assert not QuotaBlock.objects.exists()


def test_quota_047_it_shrinks_as_the_job_runs_and_no_second_counts_twice(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(100), **ACTS)
    reserve(cluster, job_id="77")
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00")
    follow.follow_reservations(moment=at("2026-03-05 13:00"))
    assert figures(vision, at("2026-03-05 13:00")) == ["16", "80", "4"]
    follow.follow_reservations(moment=at("2026-03-05 13:10"))
    assert figures(vision, at("2026-03-05 13:10")) == ["16", "80", "4"]  # nothing was read since
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 14:00", ended=True)
    over = follow.follow_reservations(moment=at("2026-03-05 14:00"))
    assert (over.ended, over.lapsed) == (1, 0)
    assert figures(vision, at("2026-03-05 14:00")) == ["32", "0", "68"]  # 64.00 more than the 4.00


def test_quota_047_under_a_key_that_was_released_a_requeued_job_is_held_anew(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(200), **ACTS)
    first = reserve(cluster, job_id="77").reservation
    assert reserve(cluster, job_id="77").reservation == first  # asked twice, held once
    assert figures(vision) == ["0", "96", "104"]
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00", ended=True)
    later = at("2026-03-05 13:05")
    follow.follow_reservations(moment=later)
    assert figures(vision, later) == ["16", "0", "184"]
    again = reserve(cluster, job_id="77", now=later).reservation
    assert again not in (None, first)
    follow.follow_reservations(moment=later + timedelta(minutes=1))
    assert figures(vision, later) == ["16", "96", "88"]  # the run that ended is not the one that waits
    runs(cluster, "77", "2026-03-05 13:30", "2026-03-05 14:30")
    follow.follow_reservations(moment=at("2026-03-05 14:30"))
    assert figures(vision, at("2026-03-05 14:30")) == ["32", "80", "88"]


def test_quota_047_another_time_limit_takes_the_place_of_the_one_before_unless_it_does_not_fit(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(100), **ACTS)
    reserve(cluster, job_id="77")
    assert reserve(cluster, 7, job_id="77").reservation is None  # 112.00
    assert figures(vision) == ["0", "96", "4"]
    runs(cluster, "77", "2026-03-05 12:00", "2026-03-05 13:00")
    follow.follow_reservations(moment=at("2026-03-05 13:00"))
    assert reserve(cluster, 5, job_id="77", now=at("2026-03-05 13:00")).reservation is not None
    assert figures(vision, at("2026-03-05 13:00")) == ["16", "64", "20"]
    assert release_key(cluster=cluster, key="a", now=at("2026-03-05 13:00"))
    assert not release_key(cluster=cluster, key="a", now=at("2026-03-05 13:00"))
    assert figures(vision, at("2026-03-05 13:00")) == ["16", "0", "84"]


def test_quota_048_what_never_came_goes_after_fifteen_minutes_and_what_vanished_after_a_day_and_both_are_told(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(500), **ACTS)
    reserve(cluster, key="a")
    reserve(cluster, key="b", job_id="78")
    waits = {"started": None, "ended": None, "submitted": "2026-03-05 12:00", "state": "PENDING"}
    reserve(cluster, key="c", job_id="79")
    soon = at("2026-03-05 12:14")
    assert follow.follow_reservations(moment=soon).lapsed == 0
    assert figures(vision, soon) == ["0", "288", "212"]
    late = at("2026-03-05 12:15")
    assert figures(vision, late) == ["0", "192", "308"]  # whether or not a pass has looked
    assert follow.follow_reservations(moment=late).lapsed == 1
    builders.ingest(cluster, builders.a_job(job_id="79", gpus=8, **waits), as_of="2026-03-06 11:59")
    assert follow.follow_reservations(moment=at("2026-03-06 12:30")).lapsed == 0
    builders.ingest(cluster, as_of="2026-03-06 12:00")
    assert follow.follow_reservations(moment=at("2026-03-06 12:30")).lapsed == 1
    assert follow.follow_reservations(moment=at("2026-03-06 12:30")).lapsed == 0
    ends = Reservation.objects.order_by("key").values_list("key", "end")
    assert list(ends) == [("a", ReservationEnd.NEVER_CAME), ("b", ReservationEnd.VANISHED), ("c", "")]
    lapsed = Event.objects.filter(type=EventType.QUOTA_RESERVATION_LAPSED).order_by("pk")
    assert [event.state for event in lapsed] == ["never-came", "vanished"]


def test_quota_049_a_cap_for_one_reservation_holds_less_than_the_worst_case(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(100), reservation_cap=Decimal(40), **ACTS)
    for key in "ab":
        assert reserve(cluster, key=key, job_id=key).reservation is not None
    assert figures(vision) == ["0", "80", "20"]
    assert reserve(cluster, key="c").reservation is None
    runs(cluster, "a", "2026-03-05 12:00", "2026-03-05 17:00")  # 80.00; an hour is left of it
    follow.follow_reservations(moment=at("2026-03-05 17:00"))
    assert figures(vision, at("2026-03-05 17:00")) == ["80", "56", "-36"]


def test_quota_051_an_array_is_reserved_whole_or_as_what_runs_at_once(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(2100), **ACTS)
    whole = reserve(cluster, 1, 1, "a", array=Array(1000)).reservation
    assert whole is not None
    assert whole.at_once == 1000
    assert figures(vision) == ["0", "2000", "100"]
    release_key(cluster=cluster, key="a", now=NOW)
    reserve(cluster, 1, 1, "a", array=Array(10, 8), job_id="90")
    assert figures(vision) == ["0", "16", "2084"]
    running = {"ended": None, "seen_until": "2026-03-05 12:30", "state": "RUNNING"}
    tasks = [task_of(1, ended="2026-03-05 12:30"), *(task_of(task, **running) for task in range(2, 9))]
    builders.ingest(cluster, *tasks, as_of="2026-03-05 12:30")
    half = at("2026-03-05 12:30")
    follow.follow_reservations(moment=half)
    assert figures(vision, half) == ["8", "9", "2083"]  # seven halves, and one task that may begin
    rest = [task_of(task, ended="2026-03-05 13:00") for task in range(2, 11)]
    builders.ingest(cluster, *rest, as_of="2026-03-05 13:00")
    assert follow.follow_reservations(moment=at("2026-03-05 13:00")).ended == 1
    assert figures(vision, at("2026-03-05 13:00")) == ["19", "0", "2081"]


def test_quota_012_of_a_period_that_ends_first_only_its_part_is_held(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(50), **ACTS)
    late = at("2026-03-31 22:00")
    assert reserve(cluster, now=late, job_id="77").reservation is not None  # two hours: 32.00
    assert figures(vision, late) == ["0", "32", "18"]
    assert figures(vision, at("2026-04-01 00:00")) == [
        "0",
        "96",
        "-46",
    ]  # it has not begun: all six hours are April's


def test_quota_002_gpu_hours_are_held_in_their_own_unit_and_other_scopes_hold_nothing(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, "hours", measure=QuotaMeasure.GPU_HOURS, amount=Decimal(100), gpu_model="a100")
    reserve(cluster, 1, 1, "a", gpu_share=(1, 7))
    reserve(cluster, 1, 1, "b", gpu_model="h100")
    one = status(vision)
    assert (one.text(one.figure.reserved), one.figure.reserved > 0) == ("0.143 GPU-hours", True)


def test_an_account_that_nobody_owns_reserves_nothing(vision: Tenant, cluster: Cluster) -> None:
    a_quota(vision, amount=Decimal(1), **ACTS)
    job = builders.a_job(account="elsewhere")
    assert reserve_job(cluster=cluster, key="a", job=job, now=NOW) is None
    assert Reservation.objects.count() == 0


def test_the_month_that_is_nearly_spent_still_refuses(vision: Tenant, cluster: Cluster) -> None:
    a_quota(vision, **ACTS)
    spend(cluster, "990.00")
    refused = reserve(cluster, 1, 8)
    assert refused.reservation is None
    assert reserve(cluster, 0.5, 8).reservation is not None


def test_what_was_reserved_of_a_budget_in_dollars_is_nothing_of_one_that_now_counts_hours(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(100), **ACTS)
    reserve(cluster, job_id="77")
    a_quota(vision, made="2026-03-05", amount=Decimal(200), **ACTS)
    assert figures(vision) == ["0", "96", "104"]  # another amount counts the same
    a_quota(vision, made="2026-03-05", measure=QuotaMeasure.GPU_HOURS, amount=Decimal(100), **ACTS)
    assert figures(vision) == ["0", "0", "100"]
    reserve(cluster, 5, job_id="77")
    assert figures(vision) == ["0", "40", "60"]


def test_quota_046_many_jobs_of_less_than_half_a_cent_are_held_all_the_same(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal("0.01"), **ACTS)
    done = [reserve(cluster, 0.002, 1, str(number)).reservation for number in range(5)]  # 7 s: 0.0039 each
    assert [row is not None for row in done] == [True, True, False, False, False]


def test_quota_051_little_that_is_asked_for_under_another_key_takes_nothing_from_what_a_job_holds(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(200), **ACTS)
    job = reserve(cluster, key="job-9", job_id="9").reservation
    reserve(cluster, 1, 1, key="ask-1")
    assert figures(vision) == ["0", "98", "102"]
    assert reserve(cluster, 1, 1, key="ask-1", job_id="9").reservation == job
    assert figures(vision) == ["0", "96", "104"]


@pytest.mark.django_db(transaction=True)
def test_quota_051_two_who_ask_at_once_for_one_job_under_two_keys_wait_in_one_order(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(200), **ACTS)
    reserve(cluster, key="ask-1", job_id="9")

    def asks() -> None:
        try:
            reserve(cluster, 5, key="ask-1", job_id="9")
        finally:
            connection.close()

    other = threading.Thread(target=asks)
    with transaction.atomic():
        take_turn(cluster, "job 9")
        other.start()
        deadline = time.monotonic() + 20
        with connection.cursor() as cursor:
            while time.monotonic() < deadline:
                cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
                if cursor.fetchone()[0]:
                    break
                time.sleep(0.02)
        Reservation.objects.select_for_update(nowait=True).get(key="ask-1")  # it has none of the rows yet
    other.join(20)
    assert figures(vision) == ["0", "80", "120"]
