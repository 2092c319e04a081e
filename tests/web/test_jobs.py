"""The list of jobs, its filters and its pages, and one job with what it costs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from billing.models import RatedJob
from portal.core.tenants.models import User
from tests import builders, sharing, stories
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

JOBS = "/t/vision-lab/jobs/"


def listed(person: User, query: str = "") -> list[str]:
    """Job ids as they stand in the list, top to bottom."""
    html = page(person, JOBS + query, **{"HX-Request": "true"})
    return re.findall(r'href="/t/vision-lab/jobs/\d+/">([^<]+)</a>', html)


def a_week(house: House) -> None:
    """Seven more jobs of the vision lab in May, each unlike the others."""
    builders.own(house.vision, house.cluster, "robots", project="Robots")
    jobs: list[dict[str, Any]] = [
        {"job_id": "31", "user": "ada"},
        {"job_id": "32", "account": "robots"},
        {"job_id": "33", "gpu_model": "mi300x", "gpus": 2},
        {"job_id": "34", "state": "FAILED"},
        {"job_id": "35", "name": "100%_sure"},
        {"job_id": "36", "state": "RUNNING", "ended": None, "seen_until": "2026-05-06 12:00"},
        {"job_id": "37", "state": "CANCELLED", "ended": "2026-05-07 10:00"},
    ]
    facts = []
    for day, fields in enumerate(jobs, start=1):
        moments = {"started": f"2026-05-0{day} 10:00", "ended": f"2026-05-0{day} 11:00"}
        facts.append(builders.a_job(**{**moments, **fields}))
    builders.ingest(house.cluster, *facts)


@pytest.mark.parametrize(
    ("query", "jobs"),
    [
        ("", ["37", "36", "35", "34", "33", "32", "31", "18", "17"]),
        ("?user=ada", ["31", "18"]),
        ("?gpu_model=mi300x", ["33"]),
        ("?state=FAILED", ["34"]),
        ("?state=FAILED,Failed", ["34"]),
        ("?state=failed", ["34"]),
        ("?state=Failed", []),
        ("?period=2026-03-01", ["18", "17"]),
        ("?q=train", ["17"]),
        ("?q=3", ["37", "36", "35", "34", "33", "32", "31"]),
        ("?q=100%25_", ["35"]),
        ("?q=%25", ["35"]),
        ("?q=_", ["35"]),
        ("?user=ada&period=2026-05-01", ["31"]),
        ("?user=nobody", []),
        ("?q=%00", ["37", "36", "35", "34", "33", "32", "31", "18", "17"]),
    ],
)
def test_filters_narrow_the_list(query: str, jobs: list[str], house: House) -> None:
    a_week(house)
    assert listed(house.ben, query) == jobs


def test_one_can_ask_for_a_project_of_ones_own_only(house: House) -> None:
    a_week(house)
    robots = house.vision.projects.get(name="Robots").pk
    assert listed(house.ben, f"?project={robots}") == ["32"]
    anothers = house.speech.projects.get().pk
    for query in (f"?project={anothers}", "?project=x", "?period=2020-01-01"):
        assert signed_in(house.ben).get(JOBS + query).status_code == 404


def test_filters_offer_what_the_tenant_has(house: House) -> None:
    a_week(house)
    html = page(house.ben, JOBS)
    for offered in ("Robots", "mi300x", "March 2026", "May 2026", '<option value="ada">'):
        assert offered in html
    assert "speech" not in html
    assert '<option value="FAILED,Failed" selected>Failed<' in page(house.ben, JOBS + "?state=FAILED,Failed")
    assert '<option value="FAILED" selected>FAILED<' in page(house.ben, JOBS + "?state=FAILED")


def test_htmx_gets_the_rows_and_others_the_page(house: House) -> None:
    client = signed_in(house.ben)
    rows, whole = client.get(JOBS, headers={"HX-Request": "true"}), client.get(JOBS)
    assert b"<html" not in rows.content
    assert b"<html" in whole.content
    assert rows.content.strip() in whole.content
    assert "HX-Request" in rows.headers["Vary"]
    assert "HX-Request" in whole.headers["Vary"]


def test_a_long_list_is_read_page_by_page_without_a_gap_or_a_repeat() -> None:
    house = a_house(close=False)
    same_start = [
        builders.a_job(job_id=f"j{n:03}", started="2026-05-01 10:00", ended="2026-05-01 11:00")
        for n in range(120)
    ]
    builders.ingest(house.cluster, *same_start)
    query, seen = "?user=ben", list[str]()
    for _ in range(5):
        seen += listed(house.ben, query)
        html = page(house.ben, JOBS + query)
        more = re.search(r'href="/t/vision-lab/jobs/(\?[^"]*before=[^"]+)"', html)
        if more is None:
            break
        query = more[1].replace("&amp;", "&")
        assert "user=ben" in query
    assert seen == [f"j{n:03}" for n in reversed(range(120))] + ["17"]


@pytest.mark.parametrize("cursor", ["x", "1-", "9" * 30 + "-1", "-1-1", "1e3-2"])
def test_a_cursor_that_is_none_begins_at_the_top(cursor: str, house: House) -> None:
    assert listed(house.ben, f"?before={cursor}") == ["18", "17"]


def test_each_job_shows_what_it_cost(house: House) -> None:
    a_week(house)
    text = words(page(house.ben, JOBS))
    assert "17 train ben vision 2 × a100 2 Mar 2026, 10:00 03:00:00 Completed 6.00 $12.00" in text
    assert "33 – ben vision 2 × mi300x 3 May 2026, 10:00 01:00:00 Completed 2.00 Unpriced" in text
    assert "36 – ben vision 1 × a100 6 May 2026, 10:00 02:00:00 Running 2.00 $4.00 so far" in text
    assert "37 – ben vision 1 × a100 7 May 2026, 10:00 00:00:00 Cancelled 0.00 –" in text


def test_a_second_of_a_gpu_is_not_shown_as_nothing(house: House) -> None:
    builders.ingest(
        house.cluster, builders.a_job(job_id="1s", started="2026-05-01 10:00", ended="2026-05-01 10:00:01")
    )
    assert "< 0.01 $0.000556" in words(page(house.ben, JOBS))


def test_a_slice_of_a_gpu_costs_its_share(house: House) -> None:
    builders.ingest(
        house.cluster,
        builders.a_job(
            job_id="mig",
            gpus=3,
            gpu_share=(1, 7),
            mig_profile="1g.5gb",
            started="2026-05-01 10:00",
            ended="2026-05-01 17:00",
        ),
    )
    text = words(page(house.ben, JOBS))
    assert "mig – ben vision 3 × 1g.5gb of a100 1 May 2026, 10:00 07:00:00 Completed 3.00 $6.00" in text
    one = words(page(house.ben, f"{JOBS}{house.record('mig')}/"))
    assert "75,600 GPU-seconds × 1/7" in one
    assert "75,600 GPU-seconds × 1/7 ÷ 3,600 × $2.00 = $6.00" in one


def test_a_job_is_taken_apart_at_the_border_of_a_month(house: House) -> None:
    builders.ingest(
        house.cluster, builders.a_job(job_id="long", started="2026-04-30 22:00", ended="2026-05-01 03:00")
    )
    text = words(page(house.ben, f"{JOBS}{house.record('long')}/"))
    assert "30 Apr 2026, 22:00:00 – 1 May 2026, 00:00:00" in text
    assert "1 May 2026, 00:00:00 – 1 May 2026, 03:00:00" in text
    assert "7,200 GPU-seconds ÷ 3,600 × $2.00 = $4.00" in text
    assert "10,800 GPU-seconds ÷ 3,600 × $2.00 = $6.00" in text
    assert "Cost $10.00" in text


def test_a_correction_after_the_invoice_shows_what_it_takes_back(house: House) -> None:
    longer = builders.a_job(
        job_id="17", name="train", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 15:00"
    )
    builders.ingest(house.cluster, longer)
    text = words(page(house.ann, f"{JOBS}{house.record('17')}/"))
    assert "Cost $20.00" in text
    number = house.invoice.number
    assert f"$12.00 {number}" in text
    assert "takes back an earlier piece" in text
    assert "-$12.00 not invoiced yet" in text
    assert "$20.00 not invoiced yet" in text


def test_a_correction_before_any_invoice_leaves_no_trace_of_itself() -> None:
    house = a_house(close=False)
    longer = builders.a_job(
        job_id="17", name="train", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 15:00"
    )
    builders.ingest(house.cluster, longer)
    text = words(page(house.ann, f"{JOBS}{house.record('17')}/"))
    assert "takes back" not in text
    assert text.count("not invoiced yet") == 1


def test_times_are_those_of_the_tenants_zone(house: House) -> None:
    house.vision.timezone = "America/New_York"
    house.vision.save()
    text = words(page(house.ben, JOBS))
    assert "2 Mar 2026, 05:00" in text
    assert "Times in America/New_York" in text


def test_what_a_name_holds_is_never_markup(house: House) -> None:
    evil = '<script>alert(1)</script>"><img src=x>'
    builders.ingest(
        house.cluster,
        builders.a_job(
            job_id=evil,
            name=evil,
            user=evil,
            queue=evil,
            qos=evil,
            state="<B>",
            started="2026-05-01 10:00",
            ended="2026-05-01 11:00",
        ),
    )
    stories.close("2026-05", house.vision, on="2026-07-01", accept="test")
    record = RatedJob.objects.get(name=evil).record_id
    number = stories.invoice_of(house.vision, "2026-05").number
    for path in (
        JOBS,
        f"{JOBS}{record}/",
        f"{JOBS}?q=%3Cscript%3E&user=%3Cscript%3E&state=%3Cscript%3E&gpu_model=%3Cscript%3E",
        "/t/vision-lab/?period=2026-05-01",
        f"/t/vision-lab/invoices/{number}/lines/1/",
    ):
        html = page(house.ann, path)
        assert "<script>alert" not in html
        assert "<img src=x" not in html
        assert "<B>" not in html
        assert '="<' not in html


def test_a_pod_shows_the_job_that_it_is_a_part_of_and_what_all_pods_cost(house: House) -> None:
    pod = {"name": "llama", "gpus": 1, "started": "2026-05-01 10:00"}
    builders.ingest(
        house.cluster,
        builders.a_job(
            **pod, job_id="team/llama-0", source_key="p1", ended="2026-05-01 11:00", state="Failed"
        ),
        builders.a_job(
            **pod, job_id="team/llama-1", source_key="p2", ended="2026-05-01 12:00", state="OOMKilled"
        ),
        builders.a_job(
            job_id="team/lone",
            source_key="p3",
            name="lone",
            started="2026-05-01 09:00",
            ended="2026-05-01 09:30",
        ),
    )
    assert listed(house.ann) == ["team/llama", "team/lone", "18", "17"]
    assert "2 parts" in words(page(house.ann, JOBS))
    assert sorted(listed(house.ann, "?part_of=team/llama")) == ["team/llama-0", "team/llama-1"]

    head = RatedJob.objects.get(job_id="team/llama-1")
    text = words(page(house.ann, f"{JOBS}{head.record_id}/"))
    assert "Job team/llama: 2 parts" in text
    assert "OOMKilled" in text
    assert "All parts together: 3" in text
    lone = RatedJob.objects.get(job_id="team/lone")
    assert "All parts" not in page(house.ann, f"{JOBS}{lone.record_id}/")
