"""What each day used, by everything that it can be grouped by: it follows jobs as they are described now."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from billing.documents import job_users
from billing.models import DailyUsage, RatedUsage, UsageSeries
from billing.rating import engine
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.stories import prove

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster()


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])


def days(*names: str) -> Counter[tuple[str, ...]]:
    """GPU-seconds by these columns; `day` is one of them."""
    used: Counter[tuple[str, ...]] = Counter()
    for row in DailyUsage.objects.filter(series__resource="gpu").select_related("series"):
        used[tuple(str(row.day if name == "day" else getattr(row.series, name)) for name in names)] += (
            row.units
        )
    return used


def test_a_day_is_told_by_all_that_a_job_is_described_by(cluster: Cluster, vision: Tenant) -> None:
    ingest(
        cluster,
        a_job(user="ben", queue="gpu", qos="high", gpu_model="h100"),
        a_job(user="ann", queue="gpu", qos="low", gpu_model="h100", state="FAILED"),
    )
    assert days("day", "account", "cluster", "user", "queue", "qos", "gpu_model", "state") == {
        ("2026-03-02", "vision", "gpu1", "ben", "gpu", "high", "h100", "COMPLETED"): 3600,
        ("2026-03-02", "vision", "gpu1", "ann", "gpu", "low", "h100", "FAILED"): 3600,
    }
    prove()


def test_a_job_that_ends_moves_all_of_its_days_and_rewrites_no_rated_row(
    cluster: Cluster, vision: Tenant
) -> None:
    running = a_job(
        source_key="7@1",
        started="2026-03-02 12:00",
        ended=None,
        seen_until="2026-03-04 12:00",
        state="RUNNING",
    )
    ingest(cluster, running)
    assert days("day", "state") == {
        ("2026-03-02", "RUNNING"): 43_200,
        ("2026-03-03", "RUNNING"): 86_400,
        ("2026-03-04", "RUNNING"): 43_200,
    }
    prove()
    rated = set(RatedUsage.objects.values_list("id", flat=True))

    ingest(cluster, a_job(source_key="7@1", started="2026-03-02 12:00", ended="2026-03-04 12:00"))

    assert days("day", "state") == {
        ("2026-03-02", "COMPLETED"): 43_200,
        ("2026-03-03", "COMPLETED"): 86_400,
        ("2026-03-04", "COMPLETED"): 43_200,
    }
    assert set(RatedUsage.objects.values_list("id", flat=True)) == rated
    prove()


def test_each_part_of_a_description_moves(cluster: Cluster, vision: Tenant) -> None:
    own(vision, cluster, "audio")
    job: dict[str, Any] = {
        "source_key": "7@1",
        "started": "2026-03-02 22:00",
        "ended": "2026-03-03 02:00",
        "suspended": 7,
    }
    changes: list[dict[str, Any]] = [
        *({"user": "eve"}, {"queue": "night"}, {"qos": "low"}, {"state": "FAILED"}, {"gpu_model": "a100"}),
        *(
            {"account": "audio"},
            {"ended": "2026-03-03 03:00"},
            {"user": "ben", "state": "COMPLETED", "gpus": 2},
        ),
    ]
    ingest(cluster, a_job(**job))
    for change in changes:
        job |= change
        ingest(cluster, a_job(**job))
        assert {key for key, units in days("user", "queue", "qos", "state", "account").items() if units} == {
            tuple(getattr(a_job(**job), name) for name in ("user", "queue", "qos", "state", "account"))
        }
        prove()


def test_who_owned_a_job_before_is_told_nothing_of_what_became_of_it(
    cluster: Cluster, vision: Tenant
) -> None:
    speech = a_tenant("speech-lab", plan=a_plan("other"), accounts=[(cluster, "speech")])
    ingest(cluster, a_job(source_key="7@1", user="ben"))
    ingest(cluster, a_job(source_key="7@1", user="eve", account="speech", state="FAILED"))

    of_vision = UsageSeries.objects.filter(tenant=vision)
    assert set(of_vision.values_list("user", "account", "state")) == {("ben", "vision", "COMPLETED")}
    assert {row.units for row in DailyUsage.objects.filter(tenant=vision)} == {0}
    assert {row.units for row in DailyUsage.objects.filter(tenant=speech, series__resource="gpu")} == {3600}
    prove()


def test_names_of_any_length_are_grouped_by(cluster: Cluster, vision: Tenant) -> None:
    queue = "".join(chr(0x4E00 + (n * 7919) % 20_000) for n in range(9000))  # which nothing compresses
    ingest(cluster, a_job(source_key="7@1", queue=queue), a_job(queue=queue + "x"), a_job(queue="a,b}"))
    assert days("queue") == {(queue,): 3600, (queue + "x",): 3600, ("a,b}",): 3600}
    prove()


def test_days_of_erased_people_go_on_growing(cluster: Cluster, vision: Tenant) -> None:
    ingest(cluster, a_job(source_key="7@1", user="ben"), a_job(user="ben", state="FAILED"))
    job_users.erase_users(vision)
    (erased,) = {user for (user,) in days("user")}
    assert erased.startswith("erased user ")
    count = UsageSeries.objects.count()

    ingest(cluster, a_job(source_key="7@1", user=erased, ended="2026-03-02 12:00"))
    assert days("user") == {(erased,): 3600 + 7200}
    assert UsageSeries.objects.count() == count
    prove()


def test_rated_again_the_days_stay(cluster: Cluster, vision: Tenant) -> None:
    ingest(
        cluster,
        a_job(started="2026-02-27 10:00", ended="2026-04-02 11:00", suspended=77, gpus=3, gpu_share=(2, 7)),
    )
    before = list(DailyUsage.objects.order_by("pk").values())
    engine.rate_tenants([vision])
    assert list(DailyUsage.objects.order_by("pk").values()) == before
    assert at("2026-02-27").date() in {row["day"] for row in before}
