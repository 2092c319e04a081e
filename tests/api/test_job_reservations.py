"""A daemon reserves for the jobs of its cluster, with a key that does that alone. Cases 31, 38 and 46 to 51."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from django.db import OperationalError

from billing.models import QuotaBlock, Reservation
from billing.quotas import review
from clusters.models import Cluster
from portal.api.resources import job_reservations
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db
JOB: dict[str, Any] = {
    "key": "4711",
    "account": "vision",
    "user": "ben",
    "hours": "6",
    "gpus": 1,
    "gpu_model": "a100",
}
DAILY: dict[str, Any] = {
    "measure": "gpu-hours",
    "amount": "10",
    "every": "rolling",
    "hours": 24,
    "action": "no-gpu-jobs",
}


@pytest.fixture
def daemon(house: House) -> Door:
    return door(house.op, None, "jobs:reserve", cluster=house.cluster)


def test_quota_046_a_job_is_reserved_for_once_and_one_more_is_refused_with_the_budget(
    ann: Door, daemon: Door
) -> None:
    ann.send("PUT", "/quotas/daily", DAILY)
    placed = daemon.writes("/job-reservations", JOB, status=200)
    assert (placed["reserved"], placed["may_run"], placed["tasks_reserved"], placed["job_id"]) == (
        True,
        True,
        1,
        "",
    )
    assert placed["expires_at"] is not None
    again = daemon.writes("/job-reservations", JOB | {"job_id": "4711"}, status=200)
    assert (again["reserved"], again["job_id"], again["expires_at"]) == (True, "4711", None)
    assert {name: ann.reads("/quotas/daily")[name] for name in ("used", "reserved", "left")} == {
        "used": "0", "reserved": "6", "left": "4",
    }  # fmt: skip
    refused = daemon.writes("/job-reservations", JOB | {"key": "4712"}, status=200)
    assert (refused["reserved"], refused["may_run"], refused["longest_seconds"]) == (False, False, 4 * 3600)
    assert "6 GPU-hours reserved, 4 GPU-hours left" in refused["message"]
    assert [one["reserved"] for one in refused["quotas"]] == ["6"]
    assert daemon.send("DELETE", "/job-reservations/4711").status == 204
    assert daemon.send("DELETE", "/job-reservations/4711").status == 404
    assert daemon.writes("/job-reservations", JOB | {"key": "4712"}, status=200)["reserved"] is True


def test_shards_are_the_largest_parts_of_a_gpu_that_they_may_be(
    ann: Door, daemon: Door, house: House
) -> None:
    ann.send("PUT", "/quotas/daily", DAILY)
    shards = {**JOB, "gpus": 0, "shards": 2}
    refused = daemon.send("POST", "/job-reservations", shards)
    assert refused.status == 400
    assert "do not say what a shard of this GPU is" in refused.body["detail"]
    house.cluster.shares = {"a100": {"shard@gpu[1-4]": "1/8", "shard@gpu5": "1/4"}}
    house.cluster.save()
    assert daemon.writes("/job-reservations", shards, status=200)["reserved"] is True
    assert ann.reads("/quotas/daily")["reserved"] == "3"  # two fourths for six hours
    assert daemon.send("POST", "/job-reservations", shards | {"gpus": 1}).status == 400


def test_quota_051_the_answer_says_for_how_many_tasks_is_reserved(ann: Door, daemon: Door) -> None:
    ann.send("PUT", "/quotas/daily", DAILY)
    array = JOB | {"hours": "1", "tasks": 1000}
    assert daemon.writes("/job-reservations", array, status=200)["reserved"] is False
    eight = daemon.writes("/job-reservations", array | {"at_once": 8}, status=200)
    assert (eight["reserved"], eight["tasks"], eight["tasks_reserved"]) == (True, 1000, 8)
    assert daemon.post("/job-reservations", array | {"tasks": 0}).problem[0] == 400
    assert daemon.post("/job-reservations", array | {"key": ""}).problem[0] == 400
    assert daemon.post("/job-reservations", array | {"gpus": 100_000}).problem[0] == 400


def test_quota_051_a_job_has_one_reservation_whoever_asks_under_which_key(ann: Door, daemon: Door) -> None:
    ann.send("PUT", "/quotas/daily", DAILY)
    array = JOB | {"hours": "1", "tasks": 5, "at_once": 2}
    daemon.writes("/job-reservations", array, status=200)
    seen = array | {"key": "job-9", "job_id": "9"}
    daemon.writes("/job-reservations", seen, status=200)  # who follows the queue was faster: both stand
    assert ann.reads("/quotas/daily")["reserved"] == "4"
    confirmed = daemon.writes("/job-reservations", array | {"job_id": "9"}, status=200)
    assert (confirmed["reserved"], confirmed["job_id"]) == (True, "9")
    assert ann.reads("/quotas/daily")["reserved"] == "2"
    (row,) = Reservation.objects.filter(released_at=None)
    assert row.key == "job-9"
    fewer = daemon.writes("/job-reservations", seen | {"key": "other", "tasks": 1}, status=200)
    assert (fewer["tasks_reserved"], Reservation.objects.get(released_at=None).tasks) == (2, 5)


@pytest.mark.parametrize("key", ["4711/2", "4711%2F3", "a b"])
def test_what_is_reserved_is_given_free_by_the_key_that_the_answer_names(
    ann: Door, daemon: Door, key: str
) -> None:
    ann.send("PUT", "/quotas/daily", DAILY)
    placed = daemon.writes("/job-reservations", JOB | {"key": key, "job_id": "4711"}, status=200)
    other = daemon.writes("/job-reservations", JOB | {"key": "other", "job_id": "4711"}, status=200)
    assert (placed["key"], other["key"], other["reserved"]) == (key, key, True)
    assert daemon.send("DELETE", "/job-reservations/other").status == 404
    assert daemon.send("DELETE", f"/job-reservations/{quote(other['key'], safe='')}").status == 204
    assert ann.reads("/quotas/daily")["reserved"] == "0"


def test_api_038_a_key_reserves_on_its_own_cluster_alone_and_one_that_users_can_read_only_asks(
    house: House, daemon: Door
) -> None:
    builders.own(house.vision, Cluster.objects.create(name="other", timezone="UTC"), "elsewhere")
    nobodys = daemon.writes("/job-reservations", JOB | {"account": "no-such"}, status=200)
    assert daemon.writes("/job-reservations", JOB | {"account": "elsewhere"}, status=200) == nobodys
    assert (nobodys["may_run"], nobodys["reserved"]) == (True, False)
    assert not Reservation.objects.exists()
    plugin = door(house.op, None, "jobs:check", cluster=house.cluster)
    assert plugin.post("/job-reservations", JOB).status == 403
    assert plugin.send("DELETE", "/job-reservations/4711").status == 403
    assert plugin.get("/blocked-accounts").status == 403
    assert daemon.post("/job-checks", {"account": "vision", "hours": "1"}).status == 403
    elsewhere = door(house.op, None, "jobs:reserve", cluster=Cluster.objects.get(name="other"))
    daemon.writes("/job-reservations", JOB, status=200)
    assert elsewhere.send("DELETE", "/job-reservations/4711").status == 404


def test_quota_032_the_accounts_that_are_to_be_blocked_are_listed_with_the_budget(
    house: House, ann: Door, daemon: Door
) -> None:
    assert daemon.reads("/blocked-accounts") == {"data": []}
    year = {
        "measure": "money",
        "amount": "1.00",
        "every": "term",
        "from": "2026-01-01",
        "until": "2027-01-01",
    }
    ann.send("PUT", "/quotas/spent", year | {"action": "no-submissions"})
    review.review_quotas(moment=datetime.now(UTC))
    (row,) = daemon.reads("/blocked-accounts")["data"]
    assert row == {
        "account": "vision",
        "refuses": True,
        "message": "Account vision is blocked. Budget spent (everything, 2026-01-01 to 2026-12-31): "
        "$13.00 of $1.00 used, $0.00 left. It ends on 2027-01-01 00:00 UTC and does not reset. "
        "Ask an owner of Vision Lab to raise it.",
    }


def test_api_031_whoever_waits_too_long_for_others_is_told_to_ask_again(
    daemon: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(**_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(job_reservations, "reserve_job", busy)
    assert daemon.post("/job-reservations", JOB).problem == (503, "busy")


def test_quota_042_an_account_whose_waiting_jobs_are_held_is_not_listed_as_blocked(
    house: House, ann: Door, daemon: Door
) -> None:
    year = {
        "measure": "money",
        "amount": "1.00",
        "every": "term",
        "from": "2026-01-01",
        "until": "2027-01-01",
    }
    ann.send("PUT", "/quotas/of-ben", year | {"action": "hold-jobs", "user": "ben"})
    ann.send("PUT", "/quotas/of-all", year | {"action": "hold-jobs"})
    review.review_quotas(moment=datetime.now(UTC))
    assert QuotaBlock.objects.filter(holds=True).exists()
    assert daemon.reads("/blocked-accounts") == {"data": []}
