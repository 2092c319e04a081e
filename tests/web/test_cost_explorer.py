"""The cost explorer and *Why did it change?*, as tenants and operators open them."""

from __future__ import annotations

import csv
import re
from decimal import Decimal
from html import unescape

import pytest

from billing.reports import run_count_snapshots
from portal.core.outbox import outbox
from tests import builders, sharing
from tests.api.door import door
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

MARCH = "from=2026-03-01&through=2026-03-31"
COSTS = "/t/vision-lab/costs/"
CHANGE = "/t/vision-lab/costs/change/"


begun, house = sharing.fixtures(a_house, "house")


def text_of(html: str) -> str:
    return " ".join(
        unescape(
            re.sub(r"<(?:script|style).*?</(?:script|style)>|<[^>]+>", " ", html, flags=re.DOTALL)
        ).split()
    )


def links(html: str, figure: str) -> list[str]:
    """Where this figure leads."""
    pairs = re.findall(r'<a href="([^"]+)"[^>]*>\s*(?:<strong>)?([^<]+)', html)
    return [unescape(href) for href, text in pairs if text.strip() == figure]


def job_numbers(html: str) -> list[str]:
    return re.findall(r'<a class="ct-clip" title="([^"]+)"', html)


def test_ann_sees_march_by_user_and_each_figure_opens_to_its_jobs(house: House) -> None:
    html = page(house.ann, f"{COSTS}?{MARCH}&by=user")
    text = text_of(html)
    assert "1 Mar 2026 – 31 Mar 2026, compared with 1 Feb 2026 – 28 Feb 2026" in text
    assert "Total 6.50 – +$13.00 $13.00" in text
    for figure, numbers in (("$12.00", ["17"]), ("$1.00", ["18"]), ("$13.00", ["18", "17"])):
        for address in links(html, figure):
            assert job_numbers(page(house.ann, address)) == numbers
    assert len(links(html, "$12.00")) == 3  # the group's, the day's of the group, and that day's total
    assert links(html, "$12.00")[:2] == [
        "/t/vision-lab/jobs/?from=2026-03-02&through=2026-03-02",
        "/t/vision-lab/jobs/?from=2026-03-02&through=2026-03-02&user=ben",
    ]


def test_rows_add_up_and_lead_to_the_jobs_of_both_ranges(house: House) -> None:
    builders.ingest(
        house.cluster,
        *(
            builders.a_job(
                job_id=f"{month}-{n}", user=f"u{n}", gpu_share=(1, 7), started=f"2026-{month}-05 00:00",
                ended=f"2026-{month}-05 00:{n + 1:02}",
            )
            for n in range(9)
            for month in ("01", "02")
        ),
    )  # fmt: skip
    days = "from=2026-02-01&through=2026-02-28&by=user"
    html = page(house.ann, f"{COSTS}?{days}")
    table = html.partition('id="groups-title"')[2]
    rows = re.findall(r"<tr>\s*<td data-label=.*?</tr>", table, re.DOTALL)
    amounts = [re.findall(r"[−+]?\$[\d.]+", text_of(row)) for row in rows]
    assert len(rows) == 9  # seven, Other, and the total
    earlier, spend = ([row[place] for row in amounts] for place in (0, -1))
    for column in (earlier, spend):
        cents = [int(text.replace("$", "").replace(".", "")) for text in column]
        assert sum(cents[:-1]) == cents[-1] > 0
    total = next(one for one in links(rows[-1], earlier[-1]) if "2026-01-01" in one)
    assert total == "/t/vision-lab/jobs/?from=2026-01-01&through=2026-01-31"
    assert len(job_numbers(page(house.ann, total))) == 9
    hours = re.findall(r'data-label="GPU-hours"[^>]*><a href="([^"]+)"', table)
    assert unescape(hours[-1]) == "/t/vision-lab/jobs/?from=2026-02-01&through=2026-02-28"
    other = links(html, "Other")[-1]
    assert other.endswith("groups=28")
    named = text_of(page(house.ann, other))
    assert "Other" not in named.partition("Total")[2]
    assert "u0" in named


def test_a_change_leads_to_its_reasons(house: House) -> None:
    html = page(house.ann, f"{COSTS}?{MARCH}&by=user")
    whole, ben = links(html, "+$13.00")[-1], links(html, "+$12.00")[-1]
    assert "Reasons for +$13.00" in text_of(page(house.ann, whole))
    assert ben.endswith("&user=ben")
    assert "Reasons for +$12.00" in text_of(page(house.ann, ben))


def test_the_drawing_and_the_table_are_the_same_figures(house: House) -> None:
    html = page(house.ann, f"{COSTS}?{MARCH}&by=user")
    columns = re.findall(r'<a href="([^"]+)" tabindex="-1"><title>([^<]+)</title>(.*?)</a>', html, re.DOTALL)
    assert len(columns) == 31
    assert columns[1][1] == "2 Mar 2026: $12.00"
    heights = [sum(map(int, re.findall(r'height="(\d+)"', inner))) for _, _, inner in columns]
    assert (heights[1], heights[2], sum(heights)) == (200, 17, 217)
    assert "style=" not in html


def test_filters_steps_and_comparisons_are_the_address(house: House) -> None:
    html = page(house.ann, f"{COSTS}?{MARCH}&by=gpu_model&and=state&step=week&user=ada&compare=year")
    text = text_of(html)
    assert "compared with 1 Mar 2025 – 31 Mar 2025" in text
    assert "User: ada ×" in text
    assert "a100 · Completed 0.50 – +$1.00 $1.00" in text
    assert "2 Mar 2026 – 8 Mar 2026" in text
    assert 'href="/t/vision-lab/costs/change/?from=2026-03-01&amp;through=2026-03-31&amp;compare=year' in html
    other = f"{COSTS}?{MARCH}&compare=other&earlier_from=2026-03-02&earlier_through=2026-03-02"
    assert "compared with 2 Mar 2026" in text_of(page(house.ann, other))
    month = text_of(page(house.ann, f"{COSTS}?from=2026-03-31&through=2026-03-31&compare=month"))
    assert "31 Mar 2026, compared with 28 Feb 2026" in month
    assert "Neither 31 Mar 2026 nor 28 Feb 2026 has usage that matches." in month


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("from=2026-03-31&through=2026-03-01", "The range ends before it begins. Choose a later last day."),
        ("from=2026-03-31", "Enter both days like 2026-03-01, in the years 1971 to 8999."),
        ("from=9999-01-01&through=9999-01-02", "Enter both days like 2026-03-01"),
        ("from=1971-01-01&through=8999-12-31&compare=year", "A page shows 1,830 days at most."),
        ("from=2000-01-01&through=2026-01-01", "A page shows 1,830 days at most."),
        (
            "from=2026-01-01&through=2026-12-31&step=day",
            "365 columns are more than a page shows. Choose weeks",
        ),
        ("compare=other&earlier_from=x&earlier_through=y", "Enter both days like 2026-03-01"),
    ],
)
def test_a_range_that_is_none_gets_a_sentence(house: House, query: str, sentence: str) -> None:
    for path in (COSTS, CHANGE):
        assert sentence in text_of(page(house.ann, f"{path}?{query}"))
    assert signed_in(house.ann).get(f"{COSTS}csv?{query}").status_code == 404


@pytest.mark.parametrize("query", ["by=shoes", "step=hour", "compare=never", "by=user&and=tenant"])
def test_what_is_no_choice_is_no_page(house: House, query: str) -> None:
    assert signed_in(house.ann).get(f"{COSTS}?{query}").status_code == 404


def test_the_csv_has_each_bucket_and_group_exactly(house: House) -> None:
    response = signed_in(house.ann).get(f"{COSTS}csv?{MARCH}&by=user&step=day")
    rows = list(csv.reader(response.getvalue().decode().splitlines()))
    assert rows == [
        ["from", "through", "user", "gpu_hours", "currency", "cost"],
        ["2026-03-02", "2026-03-02", "ben", "6", "USD", "12"],
        ["2026-03-03", "2026-03-03", "ada", "0.5", "USD", "1"],
    ]
    assert (
        response.headers["Content-Disposition"]
        == 'attachment; filename="vision-lab-costs-2026-03-01-2026-03-31.csv"'
    )


def test_jobs_of_a_day_are_those_that_ran_in_it(house: House) -> None:
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="long", queue="gpu", started="2026-03-01 12:00", ended="2026-03-20 12:00"),
        builders.a_job(job_id="before", started="2026-03-09 12:00", ended="2026-03-10 00:00"),
        builders.a_job(job_id="first", qos="high", started="2026-03-10 00:00", ended="2026-03-10 01:00"),
        builders.a_job(job_id="after", started="2026-03-11 00:00", ended="2026-03-11 01:00"),
        builders.a_job(
            job_id="open", started="2026-03-08 00:00", ended=None, seen_until="2026-03-12 00:00", state="RUNNING"
        ),
        builders.a_job(job_id="waits", submitted="2026-03-10 05:00", started=None, ended=None, state="PENDING"),
    )  # fmt: skip
    day = "/t/vision-lab/jobs/?from=2026-03-10&through=2026-03-10"
    assert job_numbers(page(house.ann, day)) == ["first", "open", "long"]
    assert job_numbers(page(house.ann, f"{day}&queue=gpu")) == ["long"]
    assert job_numbers(page(house.ann, f"{day}&queue=(none)&qos=(none)")) == ["open"]
    assert job_numbers(page(house.ann, f"{day}&cluster=elsewhere")) == []
    assert "Ran 10 Mar 2026, with what each cost in all; Queue: gpu" in text_of(
        page(house.ann, f"{day}&queue=gpu")
    )
    meters = page(house.ann, f"{COSTS}?{MARCH}&by=meter")
    assert "gpu" in text_of(meters)
    assert (
        "/jobs/?"
        not in meters.partition("<tbody>")[2].partition("</table>")[2].partition("ct-report-total")[0]
    )
    bad = page(house.ann, "/t/vision-lab/jobs/?from=2026-03-10&through=never")
    assert "Enter both days like 2026-03-01" in bad


def run_on_both(house: House) -> None:
    """What Slurm calls RUNNING and FAILED is Running and Failed on Kubernetes."""
    hours = zip(
        ("RUNNING", "Running", "FAILED", "Failed", "COMPLETED", "Succeeded", ""), range(1, 8), strict=True
    )
    builders.ingest(
        house.cluster,
        *(
            builders.a_job(
                job_id=f"s{length}", state=state, started="2026-05-05 00:00", ended=f"2026-05-05 0{length}:00"
            )
            for state, length in hours
        ),
    )


@pytest.mark.parametrize("by", ["state", "user", "project", "gpu_model", "account", "queue"])
def test_each_figure_is_what_the_jobs_cost_that_it_opens_to(house: House, by: str) -> None:
    run_on_both(house)
    html = page(house.ann, f"{COSTS}?from=2026-03-01&through=2026-05-31&by={by}&step=month")
    figures = {
        unescape(href): text
        for href, text in re.findall(
            r'<a href="(/t/vision-lab/jobs/[^"]+)"[^>]*>(?:<strong>)?(\$[\d.]+)', html
        )
    }
    assert len(figures) > 2
    for href, text in figures.items():
        answer = signed_in(house.ann).get(href.replace("/jobs/?", "/jobs/csv?"))
        rows = csv.DictReader(b"".join(answer).decode().splitlines())
        assert f"${sum(Decimal(row['cost']) for row in rows):.2f}" == text, href


def test_two_schedulers_words_for_one_state_are_told_apart_where_both_are_there(house: House) -> None:
    run_on_both(house)
    html = page(house.ann, f"{COSTS}?from=2026-05-01&through=2026-05-31&by=state")
    form = html.partition('name="state"')[2].partition("</select>")[0]
    offered = re.findall(r"<option[^>]*>([^<]+)</option>", form)
    assert {"RUNNING", "Running", "FAILED", "Failed", "Completed", "Succeeded"} <= {*offered}
    assert len({*offered}) == len(offered)
    assert re.findall(r"\b(RUNNING|FAILED)\b", text_of(html.partition("<tbody>")[2])) != []
    alone = page(house.ann, f"{COSTS}?from=2026-05-01&through=2026-05-31&by=state&state=COMPLETED")
    assert "Completed" in text_of(alone.partition("<tbody>")[2])


def test_a_state_that_ann_types_in_small_letters_is_that_of_both_schedulers(house: House) -> None:
    run_on_both(house)
    for address in (COSTS, CHANGE):
        html = page(house.ann, f"{address}?from=2026-05-01&through=2026-05-31&by=state&state=failed")
        groups = text_of(html.partition("<tbody>")[2])
        assert ("FAILED" in groups, "Failed" in groups, "Completed" in groups) == (True, True, False), address
    html = page(house.ann, f"{COSTS}?from=2026-05-05&through=2026-05-05&state=failed&by=")
    assert job_numbers(page(house.ann, links(html, "$14.00")[0])) == ["s4", "s3"]


def test_a_program_reads_of_each_state_what_its_jobs_cost(house: House) -> None:
    run_on_both(house)
    ann = door(house.ann, house.vision)
    (bucket,) = ann.reads("/usage?from=2026-05-01&to=2026-06-01&interval=month&group_by=state")["buckets"]
    costs = {row["group"]["state"]: row["used"]["cost"][0]["amount"] for row in bucket["groups"]}
    assert (costs["RUNNING"], costs["Running"]) == ("2", "4")
    for state in costs.keys() - {""}:
        (job,) = ann.all(f"/jobs?state={state}&from=2026-05-01T00:00:00Z")
        assert job["cost"]["amount"] == costs[state]


def test_pages_of_jobs_that_ran_go_on_to_the_last(house: House) -> None:
    long = [
        builders.a_job(job_id=f"l{n}", started=f"2026-02-{n % 20 + 1:02} 12:00", ended="2026-03-20 12:00")
        for n in range(60)
    ]
    day = [
        builders.a_job(job_id=f"d{n}", started="2026-03-10 00:00", ended="2026-03-10 01:00")
        for n in range(50)
    ]
    builders.ingest(house.cluster, *long, *day)
    address, seen = "/t/vision-lab/jobs/?from=2026-03-10&through=2026-03-10", []
    while address:
        html = page(house.ann, address)
        seen.append(job_numbers(html))
        older = re.search(r'<a class="btn" href="([^"]+)"[^>]*>More jobs', html)
        address = unescape(older[1]) if older else ""
    assert [len(numbers) for numbers in seen] == [50, 50, 10]
    assert len({number for numbers in seen for number in numbers}) == 110


def test_why_it_changed_adds_up_and_opens_to_jobs(house: House) -> None:
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="20", gpus=4, started="2026-04-02 10:00", ended="2026-04-02 13:00"),
    )
    april = "from=2026-04-01&through=2026-04-30"
    html = page(house.ann, f"{CHANGE}?{april}")
    text = text_of(html)
    assert "Reasons for +$11.00" in text
    assert "ben · a100 Length of runs 6.00 → 12.00 GPU-hours a run 109.1 % +$12.00" in text
    assert "ada · a100 Number of runs no longer used: 0.50 GPU-hours before −9.1 % −$1.00" in text
    (gained,) = links(html, "+$12.00")
    (gone,) = links(html, "−$1.00")
    assert job_numbers(page(house.ann, gained)) == ["20"]
    assert job_numbers(page(house.ann, gone)) == ["18"]
    assert "No charges in these days" in page(house.ann, f"{CHANGE}?from=2025-01-01&through=2025-01-31")
    assert "Usage alone" in page(house.ben, f"{CHANGE}?{april}")
    assert "Usage alone" not in page(house.ann, f"{CHANGE}?{april}")


def test_many_runs_are_counted_by_a_worker_and_the_page_waits_for_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_count_snapshots, "LARGE", 1)
    builders.ingest(
        house.cluster, builders.a_job(job_id="20", started="2026-04-02 10:00", ended="2026-04-02 13:00")
    )
    ann, path = signed_in(house.ann), f"{CHANGE}?from=2026-04-01&through=2026-04-30&user=ben"
    html = ann.get(path).text
    assert "Until they are counted, their number and length are one reason, the volume." in text_of(html)
    assert 'hx-trigger="every 2s"' in html
    assert "Volume" in text_of(html)
    assert "Number of runs" not in text_of(html)
    question = ann.get(path, headers={"HX-Request": "true"})
    assert "HX-Refresh" not in question.headers
    assert "Reasons" not in question.text
    outbox.drain()
    assert ann.get(path, headers={"HX-Request": "true"}).headers["HX-Refresh"] == "true"
    counted = text_of(ann.get(path).text)
    assert "Length of runs" in counted
    assert "Runs as of" in counted
    assert "runs are in these two ranges" not in counted
    day = text_of(ann.get(f"{CHANGE}?from=2026-04-02&through=2026-04-02").text)
    assert "new: 3.00 GPU-hours" in day
    assert "Runs as of" not in day  # few ran on these days, so the page has counted them


def test_more_runs_than_a_worker_counts_are_one_volume(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_count_snapshots, "LARGE", 0)
    monkeypatch.setattr(run_count_snapshots, "MOST_ON_REQUEST", 1)
    path = f"{CHANGE}?from=2026-03-01&through=2026-03-31"
    page(house.ann, path)
    outbox.drain()
    html = page(house.ann, path)
    assert "More than 1 runs are in these two ranges" in text_of(html)
    assert "Choose fewer days, or filters." in text_of(html)
    assert "hx-trigger" not in html.partition('id="runs"')[2].partition("</div>")[0]


def test_both_are_led_to_and_strangers_get_nothing(house: House) -> None:
    start = page(house.ann, "/t/vision-lab/?period=2026-03-01")
    for address in (f"{COSTS}?{MARCH}", f"{CHANGE}?{MARCH}"):
        assert f'href="{address.replace("&", "&amp;")}' in start
        assert signed_in(house.eve).get(address).status_code == 404
        assert "$13.00" in page(house.op, address)
    assert f'href="{COSTS}"' in start
    assert signed_in(house.eve).get(f"{COSTS}csv?{MARCH}").status_code == 404
    assert "eve" not in page(house.ann, f"{COSTS}?{MARCH}&by=user&user=eve").partition("<table")[2]


def test_a_tenant_without_usage_is_told_so(house: House) -> None:
    lab = builders.a_tenant("new-lab", plan=builders.a_plan("new"))
    ann = builders.a_person("new@lab.example", lab)
    assert "No usage in these days" in page(ann, "/t/new-lab/costs/")
    assert "No charges in these days" in page(ann, "/t/new-lab/costs/change/")
