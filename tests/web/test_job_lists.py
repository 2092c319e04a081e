"""Ann sorts her jobs, chooses what stands in the list, adds up what is filtered, and takes all of it as CSV."""

from __future__ import annotations

import csv
import re
from io import StringIO

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.queries import job_lists
from billing.queries.job_lists import Order
from billing.queries.jobs import JobFilter
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_jobs import JOBS, a_week, listed
from tests.web.test_overview import words
from tests.web.test_page_weight import is_question

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

MARCH = "?from=2026-03-01&through=2026-03-31"


def test_jobs_are_sorted_and_read_on_page_by_page_in_each_order(house: House) -> None:
    a_week(house)
    assert listed(house.ben, "?sort=oldest")[:3] == ["17", "18", "31"]
    assert listed(house.ben, f"{MARCH}&sort=cost") == ["17", "18"]  # $12 and $1
    assert listed(house.ben, "?period=2026-05-01&sort=gpu-hours")[:2] == ["36", "33"]  # two GPU-hours each
    assert listed(house.ben, "?sort=cost") == listed(house.ben)
    assert "Choose a period or days to sort by cost" in page(house.ben, f"{JOBS}?sort=cost")
    assert signed_in(house.ben).get(f"{JOBS}?sort=name").status_code == 404
    hours = [
        builders.a_job(
            job_id=f"j{n:03}", gpus=1 + n % 7, started="2026-06-01 10:00", ended="2026-06-01 11:00"
        )
        for n in range(60)
    ]
    builders.ingest(house.cluster, *hours)
    ben = signed_in(house.ben)
    june = "?from=2026-06-01&through=2026-06-30"
    for order in ("oldest", "cost", "gpu-hours"):
        query, seen, sizes = f"{june}&sort={order}", list[str](), set[int]()
        while query:
            with CaptureQueriesContext(connection) as queries:
                html = ben.get(JOBS + query).content.decode()
            sizes.add(sum(is_question(query_of["sql"]) for query_of in queries))
            seen += re.findall(r'href="/t/vision-lab/jobs/\d+/">([^<]+)</a>', html)
            more = re.search(r'href="/t/vision-lab/jobs/(\?[^"]*before=[^"]+)"', html)
            query = more[1].replace("&amp;", "&") if more else ""
        assert sorted(seen) == [f"j{n:03}" for n in range(60)], order
        assert max(sizes) <= 20
        if order != "oldest":
            sizes_of = [1 + int(name[1:]) % 7 for name in seen]
            assert sizes_of == sorted(sizes_of, reverse=True)
    for cursor in ("x", "1_2_3", "nan_5", "1e999999_5", "1_" + "9" * 30):
        assert ben.get(f"{JOBS}{june}&sort=cost&before={cursor}").status_code == 200


def test_the_totals_are_of_what_is_filtered_and_say_where_to_look_if_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, house: House
) -> None:
    assert "Show totals" in page(house.ann, JOBS)
    assert "2 jobs, 6.50 GPU-hours, $13.00" in words(page(house.ann, f"{JOBS}?totals=1"))
    assert "1 job, 0.50 GPU-hours, $1.00" in words(page(house.ann, f"{JOBS}{MARCH}&user=ada&totals=1"))
    a_week(house)
    assert "9 jobs, 14.50 GPU-hours, $25.00 (1 job without a price)" in words(
        page(house.ann, f"{JOBS}?totals=1")
    )
    monkeypatch.setattr(job_lists, "MOST_ADDED", 1)
    assert "More than 1 job match: narrow the filters" in words(page(house.ann, f"{JOBS}?totals=1"))


def test_columns_are_chosen_and_kept_in_the_address(house: House) -> None:
    html = page(house.ann, f"{JOBS}?user=ben&col=waited&col=account&col=none-such")
    heads = re.findall(r'<th scope="col"[^>]*>([^<]+)</th>', html)
    assert heads == ["Job", "Account", "Waited", "Cost"]
    assert "17 vision 00:00:00 $12.00" in words(html)
    assert 'name="user" value="ben"' in html.partition('aria-label="Columns"')[2]
    assert '<input type="hidden" name="col" value="account">' in html
    assert re.search(r'jobs/\?user=ben&amp;col=waited&amp;col=account[^"]*&amp;totals=1"', html)
    assert re.findall(r'<th scope="col"[^>]*>([^<]+)</th>', page(house.ann, JOBS))[1] == "Name"


def test_all_that_is_filtered_comes_as_csv_and_a_stranger_gets_none(
    monkeypatch: pytest.MonkeyPatch, house: House
) -> None:
    builders.ingest(
        house.cluster, builders.a_job(job_id="=1+1", user="ada", started="2026-05-01", ended="2026-05-02")
    )
    monkeypatch.setattr(job_lists, "CSV_PAGES", (1, 2))
    response = signed_in(house.ann).get(f"{JOBS}csv?sort=oldest")
    text = b"".join(response).decode()
    rows = list(csv.DictReader(StringIO(text)))
    assert [row["job"] for row in rows] == ["'=1+1", "18", "17"]
    assert rows[2] == {
        **dict.fromkeys(job_lists.HEADER, ""),
        "job": "17", "name": "train", "user": "ben", "project": "vision", "account": "vision", "cluster": "gpu1",
        "state": "COMPLETED", "gpus": "2", "gpu_model": "a100", "submitted": "2026-03-02T10:00:00Z",
        "started": "2026-03-02T10:00:00Z", "ended": "2026-03-02T13:00:00Z", "waited_seconds": "0",
        "duration_seconds": "10800", "gpu_hours": "6", "cost": "12", "currency": "USD",
    }  # fmt: skip
    ada = b"".join(signed_in(house.ann).get(f"{JOBS}csv{MARCH}&user=ada")).decode()
    assert [row["job"] for row in csv.DictReader(StringIO(ada))] == ["18"]
    assert signed_in(house.ann).get(f"{JOBS}csv?from=soon").status_code == 404
    assert signed_in(house.eve).get(f"{JOBS}csv").status_code == 404


def test_free_jobs_are_read_on_to_the_last_when_they_are_sorted_by_cost() -> None:
    cluster = builders.a_cluster()
    free = builders.a_plan("free", prices=[("gpu-hour", {}, "0", builders.LONG_AGO)])
    lab = builders.a_tenant("free-lab", plan=free, accounts=[(cluster, "vision")])
    times = {"started": "2026-06-01 10:00", "ended": "2026-06-01 11:00"}
    builders.ingest(cluster, *(builders.a_job(job_id=f"j{n:03}", **times) for n in range(60)))
    june = JobFilter(
        ran=(int(builders.at("2026-06-01").timestamp()), int(builders.at("2026-07-01").timestamp()))
    )
    first, cursor = job_lists.listed(lab, june, Order.COST)
    second, end = job_lists.listed(lab, june, Order.COST, after=cursor)
    assert len({job.number for job in (*first, *second)}) == 60
    assert end == ""
