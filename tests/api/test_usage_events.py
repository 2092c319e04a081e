"""Usage that a scheduler of somebody's own pushes. Cases 44 to 49 of the API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from billing.models import PeriodTotal, RatedJob
from billing.rating import pushed_usage
from clusters.models import Cluster, PushedRun, Quarantined, UsageKey, UsageRecord, VanishedRun
from portal.core.tenants import ownership
from tests.api.door import Answer, Door, door
from tests.builders import at
from tests.stories import prove
from tests.web.house import House

BATCH = "application/cloudevents-batch+json"
ONE = "application/cloudevents+json"
PUSH = "/usage-events?cluster=own"


@pytest.fixture
def own(house: House) -> Cluster:
    """A cluster whose scheduler is Op's own, on which the vision lab has an account."""
    cluster = Cluster.objects.create(name="own", kind="push")
    account = cluster.accounts.create(name="vision")
    ownership.assign(account=account, tenant=house.vision)
    return cluster


@pytest.fixture
def op(house: House) -> Door:
    return door(house.op, None)


def a_run(number: int = 1, time: str = "2026-04-02T12:00:00Z", **data: object) -> dict[str, Any]:
    """Two A100 for an hour."""
    shape = {
        "account": "vision",
        "user": "ben",
        "gpus": 2,
        "gpu_model": "a100",
        "started": "2026-04-02T10:00:00Z",
        "ended": "2026-04-02T11:00:00Z",
    }
    return an_event(number, "org.clustertab.usage.run", time, {**shape, **data})


def an_event(number: int, kind: str, time: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": str(number),
        "source": "https://scheduler.example/queue",
        "type": kind,
        "time": time,
        "data": data,
    }


def send(op: Door, events: object, content_type: str = BATCH, **headers: str) -> Answer:
    return op.send("POST", PUSH, events, **{"Content-Type": content_type}, **headers)


def statuses(answer: Answer) -> list[str]:
    assert answer.status in {200, 400}, answer.raw[:500]
    return [result["status"] for result in answer.body["results"]]


def gpu_seconds() -> int:
    return sum(int(total.units) for total in PeriodTotal.objects.filter(resource="gpu"))


def ledger() -> list[tuple[Any, ...]]:
    columns = ("source_key", "gpus", "started", "ended", "state")
    return sorted(UsageRecord.objects.filter(cluster__name="own").values_list(*columns))


@pytest.mark.usefixtures("own")
class TestPushing:
    def test_api_044_one_event_structured_or_binary_or_a_batch(self, op: Door) -> None:
        before = gpu_seconds()
        assert statuses(send(op, a_run(1), ONE)) == ["accepted"]
        event = a_run(2)
        attributes = {f"ce-{name}": event[name] for name in ("specversion", "id", "source", "type", "time")}
        assert statuses(send(op, event["data"], "application/json", **attributes)) == ["accepted"]
        assert statuses(send(op, [a_run(3), a_run(4)])) == ["accepted", "accepted"]
        assert gpu_seconds() - before == 4 * 2 * 3600
        prove()

    @pytest.mark.parametrize(
        ("change", "pointer"),
        [
            ({"specversion": "0.3"}, "/specversion"),
            ({"id": ""}, "/id"),
            ({"source": "two words"}, "/source"),
            ({"type": "com.example.other"}, "/type"),
            ({"time": "2026-04-02T12:00:00"}, "/time"),
            ({"time": "2999-04-02T12:00:00Z"}, "/time"),
            ({"data": {"gpus": 2}}, "/data"),
            ({"data": a_run(account=7)["data"]}, "/data/account"),
            ({"data": a_run(gpus=-1)["data"]}, "/data/gpus"),
            ({"data": a_run(gpus=10**9)["data"]}, "/data/gpus"),
            ({"data": a_run(gpu=1)["data"]}, "/data"),
            ({"data": a_run(started="2026-04-02T10:00:00")["data"]}, "/data/started"),
            ({"data": a_run(ended="2026-04-02T09:00:00Z")["data"]}, "/data"),
            ({"data": a_run(ended="2999-04-02T09:00:00Z")["data"]}, "/data/started"),
            ({"data": a_run(started="2024-04-02T10:00:00Z")["data"]}, "/data/started"),
        ],
    )
    def test_api_049_what_cannot_be_is_rejected_with_its_place_and_kept_as_sent(
        self, op: Door, change: dict[str, Any], pointer: str
    ) -> None:
        answer = send(op, [a_run(1), a_run(2) | change])
        assert statuses(answer) == ["accepted", "rejected"]
        (error,) = answer.body["results"][1]["errors"]
        assert error["pointer"] == pointer
        kept = Quarantined.objects.get(cluster__name="own")
        assert json.loads(kept.raw) == a_run(2) | change
        assert kept.reason == error["detail"]

    def test_api_045_none_valid_is_400_and_each_is_answered(self, op: Door) -> None:
        answer = send(op, ["no event", a_run(gpus=-1)])
        assert (answer.problem, statuses(answer)) == ((400, "no-valid-event"), ["rejected", "rejected"])
        assert ledger() == []

    def test_api_046_sent_again_in_any_order_it_is_a_duplicate(self, op: Door) -> None:
        events = [a_run(number) for number in range(30)]
        assert {*statuses(send(op, events))} == {"accepted"}
        stored, sums = ledger(), gpu_seconds()
        for seed in range(5):
            Random(seed).shuffle(events)
            assert {*statuses(send(op, events))} == {"duplicate"}
        assert (ledger(), gpu_seconds(), PushedRun.objects.count()) == (stored, sums, 30)

    def test_api_047_the_newest_event_of_a_run_counts_whatever_the_order(self, op: Door) -> None:
        first = a_run(1, "2026-04-02T12:00:00Z", gpus=2)
        second = a_run(1, "2026-04-02T13:00:00Z", gpus=4)
        before = gpu_seconds()
        assert statuses(send(op, [second])) == ["accepted"]
        assert statuses(send(op, [first])) == ["duplicate"]
        assert gpu_seconds() - before == 4 * 3600
        third = a_run(1, "2026-04-02T14:00:00Z", gpus=1)
        assert statuses(send(op, [third, second])) == ["changed", "duplicate"]
        assert gpu_seconds() - before == 3600
        prove()

    def test_api_048_what_is_billed_to_nobody_yet_is_counted(self, op: Door) -> None:
        answer = send(op, [a_run(1, account="nobody's"), a_run(2, gpu_model="unheard-of"), a_run(3)])
        assert statuses(answer) == ["accepted"] * 3
        unbilled = {"unassigned": {"nobody's": 1}, "unpriced": {"unheard-of": 1}, "waived": {}}
        assert answer.body["warnings"] == unbilled
        prove()

    def test_api_049_an_open_run_is_billed_to_its_last_heartbeat_and_flagged_when_it_is_silent(
        self, op: Door
    ) -> None:
        before = gpu_seconds()
        shape = {name: value for name, value in a_run()["data"].items() if name != "ended"}
        for clock in ("10:20", "10:50"):
            event = an_event(1, "org.clustertab.usage.open", f"2026-04-02T{clock}:00Z", shape)
            send(op, [event])
        assert gpu_seconds() - before == 2 * 50 * 60
        flag = {"silence": timedelta(hours=1)}
        assert pushed_usage.flag_silent_runs(**flag, moment=at("2026-04-02 11:30")) == 0
        assert pushed_usage.flag_silent_runs(**flag, moment=at("2026-04-02 12:00")) == 1
        assert VanishedRun.objects.count() == 1
        assert statuses(send(op, [a_run(1)])) == ["changed"]
        assert VanishedRun.objects.count() == 0
        assert gpu_seconds() - before == 2 * 3600
        prove()

    def test_the_watermark_follows_what_the_sender_says_is_complete(self, op: Door, own: Cluster) -> None:
        through = {"through": "2026-04-03T00:00:00Z"}
        event = an_event(9, "org.clustertab.usage.complete", "2026-04-03T00:10:00Z", through)
        assert statuses(send(op, event, ONE)) == ["accepted"]
        own.refresh_from_db()
        assert own.complete_through == at("2026-04-03")

    def test_a_wrong_year_of_completeness_is_rejected_so_that_no_month_closes_by_it(
        self, op: Door, own: Cluster
    ) -> None:
        through = {"through": "2099-04-03T02:00:00+02:00"}
        event = an_event(9, "org.clustertab.usage.complete", "2026-04-03T00:10:00Z", through)
        answer = send(op, event, ONE)
        assert statuses(answer) == ["rejected"]
        (error,) = answer.body["results"][0]["errors"]
        assert error["pointer"] == "/data/through"
        assert "Its time through is 2099-04-03 00:00:00 UTC, after the clock here" in error["detail"]
        own.refresh_from_db()
        assert own.complete_through is None

    def test_a_run_that_still_waits_may_be_sent_over_a_connection_that_never_rated(self, op: Door) -> None:
        shape = {**a_run()["data"], "submitted": "2026-04-02T09:00:00Z"}
        waiting = {name: value for name, value in shape.items() if name not in {"started", "ended"}}
        for clock, became in (("10:20", "accepted"), ("10:50", "duplicate"), ("11:20", "duplicate")):
            with connection.cursor() as cursor:
                cursor.execute("DISCARD TEMP")  # the working tables of whoever rated over it before
            event = an_event(1, "org.clustertab.usage.open", f"2026-04-02T{clock}:00Z", waiting)
            answer = send(op, [event])
            assert statuses(answer) == [became]
            assert answer.body["warnings"] == {"unassigned": {}, "unpriced": {}, "waived": {}}
        assert PushedRun.objects.get().time == at("2026-04-02 11:20")

    def test_a_cluster_that_is_read_otherwise_takes_no_events(self, op: Door, house: House) -> None:
        path = f"/usage-events?cluster={house.cluster.name}"
        answer = op.send("POST", path, [a_run()], **{"Content-Type": BATCH})
        assert answer.problem == (409, "refused")
        assert "billed twice" in answer.body["detail"]

    @pytest.mark.parametrize(
        ("body", "content_type", "status"),
        [
            (b"[" * 5000, BATCH, 400),
            ({}, BATCH, 400),
            ([1] * 1001, BATCH, 413),
            (b'["' + b"x" * (5 << 20) + b'"]', BATCH, 413),
            ({"gpus": 1}, "application/json", 400),
            (b"<event/>", "application/xml", 415),
        ],
    )
    def test_api_044_other_bodies_are_refused_whole(
        self, op: Door, body: object, content_type: str, status: int
    ) -> None:
        assert send(op, body, content_type).problem[0] == status

    def test_api_018_another_scope_pushes_nothing(self, house: House) -> None:
        for other in (door(house.op, None, "ops:read"), door(house.ann, house.vision)):
            assert send(other, [a_run()]).problem == (403, "missing-scope")
        assert send(Door(""), [a_run()]).problem == (401, "unauthenticated")
        assert ledger() == []

    def test_a_file_is_not_imported_into_a_cluster_that_is_pushed(self, tmp_path: Path) -> None:
        file = tmp_path / "jobs.txt"
        file.write_text("JobIDRaw|Submit\n")
        with pytest.raises(CommandError, match=r"own is fed by pushed usage"):
            call_command("import_usage", "own", str(file))


@pytest.mark.django_db(transaction=True)
def test_api_046_eight_at_once_leave_each_run_once(house: House, own: Cluster) -> None:
    secret = door(house.op, None).secret
    events = [a_run(number) for number in range(20)]
    answers: list[list[str]] = []

    def work(seed: int) -> None:
        mine = list(events)
        Random(seed).shuffle(mine)
        answers.append(statuses(send(Door(secret), mine)))
        connections.close_all()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    _run(threads)
    assert sorted(status for one in answers for status in one) == ["accepted"] * 20 + ["duplicate"] * 140
    assert len(ledger()) == 20
    assert RatedJob.objects.filter(cluster="own").count() == 20


def _run(threads: Iterable[threading.Thread]) -> None:
    started = list(threads)
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


class TestMonths:
    """Who sends usage chooses keys and times, but not how many partitions there are."""

    def test_a_key_that_looks_like_an_instant_says_no_month(self, own: Cluster, op: Door) -> None:
        odd = a_run() | {"id": "7@1504521041"}
        assert statuses(send(op, [odd])) == ["accepted"]
        (record,) = UsageRecord.objects.filter(cluster=own)
        assert record.pk >> 40 == (2026 - 1970) * 12 + 3
        assert list(UsageKey.objects.filter(cluster=own).values_list("record_id", flat=True)) == [record.pk]
        prove()

    @pytest.mark.parametrize("field", ["submitted", "started"])
    def test_times_long_ago_make_no_partition(self, own: Cluster, op: Door, field: str) -> None:
        before = partitions()
        long_ago = [
            a_run(year, **{"started": f"{year}-04-02T10:00:00Z", field: f"{year}-04-02T10:00:00Z"},
                  ended=f"{year}-04-02T11:00:00Z")
            for year in range(2002, 2012)
        ]  # fmt: skip
        assert set(statuses(send(op, long_ago))) == {"rejected"}
        assert partitions() == before
        assert set(Quarantined.objects.filter(cluster=own).values_list("code", flat=True)) == {"too-old"}
        assert Quarantined.objects.filter(cluster=own).count() == 10
        assert not UsageRecord.objects.filter(cluster=own).exists()

    def test_a_run_sent_at_the_oldest_is_taken_and_a_second_earlier_is_not(self, own: Cluster) -> None:
        moment = at("2026-04-02 12:00")
        oldest = moment - pushed_usage.OLDEST
        became = []
        for early in (0, 1):
            started = oldest - timedelta(seconds=early)
            ended = started + timedelta(hours=1)
            event = a_run(early, started=started.isoformat(), ended=ended.isoformat())
            became += pushed_usage.push(cluster=own, values=[event], moment=moment).answers
        assert [answer.became for answer in became] == ["accepted", "rejected"]


def partitions() -> int:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'clusters_usagerecord'::regclass")
        return int(cursor.fetchone()[0])
