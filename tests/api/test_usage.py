"""Usage as a time series, as scripts and BI tools read it. Cases 27 and 34 of the API."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import combinations
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import PeriodTotal, Price, RatedJob
from billing.proof import checks
from billing.queries.usage_series import Grouping
from clusters.models import Cluster
from portal.core.tenants.models import Role, Tenant
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db

MARCH = "from=2026-03-01&to=2026-04-01"


def gpu_seconds(answer: Any) -> Fraction:
    return sum((Fraction(bucket["used"]["gpu_seconds"]) for bucket in answer["buckets"]), Fraction(0))


def cost(used: Any) -> Fraction:
    return sum((Fraction(amount["amount"]) for amount in used["cost"]), Fraction(0))


def a_lab(timezone: str) -> tuple[Tenant, Door]:
    """Four people, two projects and three queues, over the day that has 23 hours there and the month's border."""
    cluster = builders.a_cluster(complete_through="2026-05-01")
    lab = builders.a_tenant(
        "busy-lab",
        timezone=timezone,
        plan=builders.a_plan(charges=("gpu", "cpu"), prices=[
            ("gpu-hour", {}, "2.10", builders.LONG_AGO), ("cpu-core-hour", {}, "0.013", builders.LONG_AGO),
        ]),
        accounts=[(cluster, "nlp"), (cluster, "cv")],
    )  # fmt: skip
    dice = random.Random(34)
    jobs = []
    for n in range(30):
        day, hour = dice.randrange(20, 31), dice.randrange(24)
        end = builders.at(f"2026-03-{day} {hour:02d}:17").timestamp() + dice.randrange(60, 200_000)
        job = builders.a_job(
            job_id=str(n), source_key=str(n), account=dice.choice(["nlp", "cv"]), user=f"u{dice.randrange(4)}",
            queue=dice.choice(["", "long", "short"]), gpus=dice.randrange(5), cpu_milli=1000 * dice.randrange(9),
            gpu_share=(1, dice.choice([1, 7])), started=f"2026-03-{day} {hour:02d}:17", ended=int(end),
        )  # fmt: skip
        jobs.append(job)
    builders.ingest(cluster, *jobs)
    ann = builders.a_person("ann@busy.example", lab, Role.OWNER)
    return lab, door(ann, lab)


def test_api_034_the_days_of_march_add_up_to_its_invoice(house: House, ann: Door) -> None:
    answer = ann.reads(f"/usage?{MARCH}&group_by=user,gpu_model")
    assert (answer["timezone"], len(answer["buckets"])) == (house.vision.timezone, 31)
    assert answer["complete_through"] == "2026-04-20T00:00:00Z"
    assert answer["buckets"][0] == {
        "from": "2026-03-01",
        "to": "2026-03-02",
        "used": {"gpu_seconds": "0", "cost": [], "depends_on_total": False, "quantities": []},
        "groups": [],
    }
    second = answer["buckets"][1]["used"]
    assert second["cost"] == [{"amount": "12", "currency": "USD"}]
    assert sum(cost(bucket["used"]) for bucket in answer["buckets"]) * 100 == house.invoice.subtotal
    month = ann.reads(f"/usage?{MARCH}&interval=month")
    assert [(one["from"], one["to"]) for one in month["buckets"]] == [("2026-03-01", "2026-04-01")]
    assert gpu_seconds(month) == gpu_seconds(answer)


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu"])
def test_api_034_buckets_groups_totals_and_proof_are_one_sum(timezone: str) -> None:
    lab, ann = a_lab(timezone)
    days = "from=2026-03-15&to=2026-04-10"
    whole = ann.reads(f"/usage?{days}")
    totals = PeriodTotal.objects.filter(tenant=lab, resource="gpu")
    rated = sum((Fraction(int(row.units), row.share_den) for row in totals), Fraction(0))
    assert gpu_seconds(whole) == rated > 0
    sums = checks.prove().sums
    assert sums["gpu1", "gpu"].parts["pending"] == rated
    prices = dict(Price.objects.values_list("pk", "unit_price"))
    priced = sum((Fraction(row.units * prices[row.price_id]) / row.share_den / 3600
                  for row in PeriodTotal.objects.filter(tenant=lab) if row.price_id), Fraction(0))  # fmt: skip
    assert sum(cost(bucket["used"]) for bucket in whole["buckets"]) == priced
    for names in [*combinations(Grouping, 1), *list(combinations(Grouping, 3))[:12]]:
        for interval in ("day", "month"):
            answer = ann.reads(f"/usage?{days}&interval={interval}&group_by={','.join(names)}")
            assert gpu_seconds(answer) == rated
            for bucket in answer["buckets"]:
                assert [*bucket["groups"][0]["group"]] == [*names] if bucket["groups"] else True
                grouped = [group["used"] for group in bucket["groups"]]
                assert sum(Fraction(used["gpu_seconds"]) for used in grouped) == Fraction(
                    bucket["used"]["gpu_seconds"]
                )
                assert sum(map(cost, grouped)) == cost(bucket["used"])


def test_api_034_a_day_of_23_hours_is_one_bucket() -> None:
    cluster = builders.a_cluster(complete_through="2026-05-01")
    lab = builders.a_tenant(
        "berlin", timezone="Europe/Berlin", plan=builders.a_plan(), accounts=[(cluster, "b")]
    )
    builders.ingest(
        cluster, builders.a_job(account="b", started="2026-03-28 12:00", ended="2026-03-30 12:00")
    )
    ann = door(builders.a_person("b@berlin.example", lab, Role.OWNER), lab)
    answer = ann.reads("/usage?from=2026-03-28&to=2026-03-31")
    hours = [Fraction(bucket["used"]["gpu_seconds"]) / 3600 for bucket in answer["buckets"]]
    assert hours == [11, 23, 14]  # from 13:00 on, the short Sunday, and until 14:00


@pytest.mark.parametrize(
    "timezone", ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu", "Australia/Lord_Howe"]
)
def test_api_034_the_hours_of_a_day_add_up_to_it_in_each_group(timezone: str) -> None:
    """Also of runs that were suspended for a while, grew, or were taken back and rated again."""
    lab, ann = a_lab(timezone)
    cluster = Cluster.objects.get()
    for suspended, ended in ((0, "2026-04-05 09:17"), (4_321, "2026-04-05 10:41"), (977, "2026-04-06 03:03")):
        job = builders.a_job(
            job_id="s", source_key="s", account="nlp", gpus=3, started="2026-04-02 08:13", ended=ended,
            suspended=suspended,
        )  # fmt: skip
        builders.ingest(cluster, job)
    for since, until in (("2026-03-20", "2026-03-31"), ("2026-03-31", "2026-04-08")):
        for group in ("", "&group_by=user", "&group_by=queue,project,state"):
            by_day = ann.reads(f"/usage?from={since}&to={until}{group}")
            by_hour = ann.reads(f"/usage?from={since}&to={until}&interval=hour{group}")
            assert gpu_seconds(by_day) > 0
            zone, hours = ZoneInfo(timezone), defaultdict(list)
            for hour in by_hour["buckets"]:
                hours[str(datetime.fromisoformat(hour["from"]).astimezone(zone).date())].append(hour)
            assert [*hours] == [day["from"] for day in by_day["buckets"]]
            for day in by_day["buckets"]:
                assert summed(hours[day["from"]]) == summed([day])
    assert lab.timezone == timezone


def summed(buckets: list[Any]) -> dict[str, tuple[Fraction, Fraction]]:
    """GPU-seconds and cost by group."""
    sums: dict[str, list[Fraction]] = defaultdict(lambda: [Fraction(0), Fraction(0)])
    for bucket in buckets:
        for group in [{"group": "all", "used": bucket["used"]}, *bucket["groups"]]:
            sums[str(group["group"])][0] += Fraction(group["used"]["gpu_seconds"])
            sums[str(group["group"])][1] += cost(group["used"])
    return {group: (seconds, amount) for group, (seconds, amount) in sums.items() if seconds or amount}


@pytest.mark.parametrize(
    ("zone", "day", "count", "last"),
    [
        ("Europe/Berlin", "2026-03-29", 23, 3600),
        ("Europe/Berlin", "2026-10-25", 25, 3600),
        ("Australia/Lord_Howe", "2026-04-05", 25, 1800),
    ],
)
def test_api_034_a_day_of_another_length_has_its_hours(zone: str, day: str, count: int, last: int) -> None:
    lab = builders.a_tenant("far", timezone=zone, plan=builders.a_plan())
    ann = door(builders.a_person("far@far.example", lab, Role.OWNER), lab)
    until = date.fromisoformat(day) + timedelta(days=1)
    buckets = ann.reads(f"/usage?from={day}&to={until}&interval=hour")["buckets"]
    ends = [(datetime.fromisoformat(one["from"]), datetime.fromisoformat(one["to"])) for one in buckets]
    assert len(buckets) == count
    assert [end for _, end in ends[:-1]] == [since for since, _ in ends[1:]]
    assert int((ends[-1][1] - ends[-1][0]).total_seconds()) == last


def test_api_034_hours_of_a_month_that_was_detached_are_refused(house: House, ann: Door) -> None:
    RatedJob.objects.filter(job_id="17").delete()  # as far as it is seen, its partition is gone
    refused = ann.get("/usage?from=2026-03-01&to=2026-03-08&interval=hour")
    assert refused.problem == (400, "invalid-request")
    assert "ask for days" in refused.body["detail"]


def test_api_034_filters_narrow_and_a_key_of_a_project_sees_its_project(house: House, ann: Door) -> None:
    everything = gpu_seconds(ann.reads(f"/usage?{MARCH}"))
    ben, ada = (gpu_seconds(ann.reads(f"/usage?{MARCH}&user={name}")) for name in ("ben", "ada"))
    assert ben + ada == everything
    assert gpu_seconds(ann.reads(f"/usage?{MARCH}&user=ben&user=ada")) == everything
    assert gpu_seconds(ann.reads(f"/usage?{MARCH}&gpu_model=none-such")) == 0
    assert gpu_seconds(ann.reads(f"/usage?{MARCH}&interval=hour&user=ben")) == ben
    assert gpu_seconds(ann.reads(f"/usage?{MARCH}&interval=hour&project=none-such")) == 0
    elsewhere = house.vision.projects.create(name="elsewhere")
    assert gpu_seconds(door(house.ann, house.vision, project=elsewhere).reads(f"/usage?{MARCH}")) == 0


def test_api_034_another_tenants_use_is_not_there(house: House, ann: Door, op: Door) -> None:
    eve = door(house.eve, house.speech)
    mine, hers = gpu_seconds(ann.reads(f"/usage?{MARCH}")), gpu_seconds(eve.reads(f"/usage?{MARCH}"))
    assert gpu_seconds(op.reads(f"/usage?{MARCH}&tenant={house.speech.slug}")) == hers
    assert mine != hers
    assert ann.get(f"/usage?{MARCH}&tenant={house.speech.slug}").problem == (404, "not-found")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("to=2026-04-01", "from is missing"),
        ("from=2026-04-01&to=2026-03-01", "from is not before to"),
        ("from=2014-01-01&to=2026-01-01", "at most 400 days"),
        ("from=2014-01-01&to=2026-01-01&interval=month", "at most 3660 days"),
        (
            "from=2026-03-01&to=2026-04-02&interval=hour",
            "at most 31 days at once, or longer ones with interval=day",
        ),
        ("from=2026-03-01&to=2026-04-01&interval=week", "choose among hour, day, month"),
        ("from=2026-03-01&to=2026-04-01&group_by=job", "there is no 'job'"),
        ("from=2026-03-01&to=2026-04-01&group_by=user,queue,qos,state", "at most 3"),
        ("from=2026-03-01T00:00:00Z&to=2026-04-01", "write a day"),
    ],
)
def test_api_027_a_question_that_is_wrong_or_too_large_says_what_to_ask(
    ann: Door, query: str, sentence: str
) -> None:
    answer = ann.get(f"/usage?{query}")
    assert answer.status == 400
    assert sentence in answer.body["detail"]


def test_api_062_the_number_of_queries_does_not_grow_with_the_groups(ann: Door) -> None:
    ann.reads("/me")  # the key notes when it was first used
    for interval in ("day", "hour"):
        counts = set()
        for groups in ("", "&group_by=user", "&group_by=user,gpu_model,queue"):
            with CaptureQueriesContext(connection) as queries:
                ann.reads(f"/usage?{MARCH}&interval={interval}{groups}")
            counts.add(len(queries))
        assert len(counts) == 1


@pytest.mark.parametrize("name", ["gpu-hour", "gpu"])
def test_a_meter_has_the_name_of_its_price_or_that_of_its_group(name: str, house: House, ann: Door) -> None:
    march = ann.reads(f"/usage?{MARCH}&interval=month&group_by=meter&meter={name}")["buckets"][0]
    assert [group["group"] for group in march["groups"]] == [{"meter": "gpu"}]
    assert cost(march["used"]) * 100 == house.invoice.subtotal
    lines = ann.reads(f"/invoices/{house.invoice.number}/lines")["data"]
    assert {line["meter"] for line in lines} == {"gpu-hour"}
    nothing = ann.reads(f"/usage?{MARCH}&interval=month&meter=cpu-core-hour")["buckets"][0]
    assert nothing["used"]["cost"] == []


@pytest.mark.parametrize("interval", ["hour", "month"])
def test_a_meter_that_there_is_not_is_refused_with_those_that_there_are(interval: str, ann: Door) -> None:
    refused = ann.get(f"/usage?from=2026-03-01&to=2026-03-03&interval={interval}&meter=gpu-hour&meter=nope")
    assert refused.problem == (400, "invalid-request")
    assert refused.body["detail"] == (
        "There is no meter 'nope'; known are: gpu-hour, cpu-core-hour, memory-gib-hour, gpu-memory-gib-hour, "
        "billing-hour."
    )
