"""From the invoice to the line, from the line to its jobs, and from the jobs back to the cents."""

from __future__ import annotations

import csv
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction
from io import StringIO

import pytest

from billing import tasks
from billing.catalog import plans, version_terms
from billing.documents.csv import cell
from billing.models import Invoice, InvoiceLine, Plan, PlanVersion
from billing.queries import invoices as reading
from billing.rating import engine
from billing.rules.meters import PerUnit
from portal.core.tenants.models import User
from tests import builders, sharing, stories
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")


def table(person: User, path: str) -> list[dict[str, str]]:
    response = signed_in(person).get(path)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(StringIO(bytes(response.getvalue()).decode())))


def at(invoice: Invoice, rest: str = "") -> str:
    return f"/t/vision-lab/invoices/{invoice.number}/{rest}"


def seconds(line: InvoiceLine) -> Fraction:
    return Fraction(int(line.seconds_num), line.seconds_den)


def resource_seconds(row: dict[str, str]) -> Fraction:
    return int(row["units"]) * Fraction(row["share"])


def a_mixed_month(house: House, jobs: int = 60) -> None:
    """May: whole GPUs and slices, in two projects, with CPU time beside."""
    builders.a_plan(
        "vision-deal",
        prices=[
            ("gpu-hour", {"gpu_model": ["a100"]}, "2.00", builders.LONG_AGO),
            ("cpu-core-hour", {}, "0.01", builders.LONG_AGO),
        ],
        charges=["gpu", "cpu"],
        effective_from=date(2026, 5, 1),
    )
    builders.own(house.vision, house.cluster, "robots", project="Robots")
    facts = [
        builders.a_job(
            job_id=f"m{n}",
            account="vision" if n % 3 else "robots",
            gpus=1 + n % 4,
            gpu_share=(1, 7) if n % 2 else (1, 1),
            cpu_milli=1500,
            started=f"2026-05-{1 + n % 28:02} 10:00",
            ended=f"2026-05-{1 + n % 28:02} 11:{n % 60:02}:{n % 59:02}",
        )
        for n in range(jobs)
    ]
    builders.ingest(house.cluster, *facts)
    engine.rate_tenants([house.vision])
    stories.close("2026-05", house.vision, on="2026-07-01", accept="test")


def test_the_list_shows_how_each_invoice_stands(house: House) -> None:
    text = words(page(house.ann, "/t/vision-lab/invoices/"))
    assert f"{house.invoice.number} March 2026 3 Apr 2026 17 Apr 2026 Past due $13.00 $13.00" in text
    assert "To pay: $13.00" in text


def test_an_invoice_says_who_owes_what_for_what(house: House) -> None:
    text = words(page(house.carla, at(house.invoice)))
    assert "Billed to Vision Lab Gate 1 10115 Berlin" in text
    assert "From Northern Compute GmbH" in text
    assert "VAT id DE123456789" in text
    assert "GPU time, a100" in text
    assert "6.5 GPU-hours $2.00 $13.00 2 jobs" in text
    assert "Total $13.00" in text
    assert "DE89 3704 0044 0532 0130 00" in text


def test_a_part_payment_leaves_the_rest(house: House) -> None:
    house.invoice.payments.create(
        tenant=house.vision, amount=300, received_on="2026-04-10", reference="RF1", recorded_by="op"
    )
    text = words(page(house.carla, at(house.invoice)))
    assert "To pay by 17 Apr 2026 $10.00 Total $13.00 Paid $3.00" in text
    assert "10 Apr 2026 Bank transfer · RF1 $3.00" in text
    assert "$10.00 $13.00" in words(page(house.carla, "/t/vision-lab/invoices/"))


def test_a_draft_is_not_the_tenants_business() -> None:
    house = a_house(close=False)
    stories.draft(house.vision, "2026-03")
    assert "No invoice yet" in page(house.ann, "/t/vision-lab/invoices/")
    assert signed_in(house.ann).get("/t/vision-lab/invoices/None/").status_code == 404


def test_a_void_invoice_says_that_it_is(house: House) -> None:
    Invoice.objects.filter(pk=house.invoice.pk).update(state="void")
    number = Invoice.objects.get(tenant=house.vision).number
    assert "This invoice is void" in page(house.ann, f"/t/vision-lab/invoices/{number}/")


def test_a_line_opens_to_its_jobs_the_largest_first(house: House) -> None:
    text = words(page(house.carla, at(house.invoice, "lines/1/")))
    assert "2 jobs held 6.5 GPU-hours, largest first. That is exactly 23,400 GPU-seconds." in text
    assert "17 ben 2 Mar 2026, 10:00:00 – 2 Mar 2026, 13:00:00 21,600 GPU-seconds 92.3 % $12.00" in text
    assert text.index("$12.00") < text.index("$1.00")
    assert "23,400 GPU-seconds ÷ 3,600 × $2.00 = $13.00" in text


def test_htmx_gets_the_jobs_alone(house: House) -> None:
    response = signed_in(house.carla).get(at(house.invoice, "lines/1/"), headers={"HX-Request": "true"})
    assert b"<html" not in response.content
    assert "HX-Request" in response.headers["Vary"]


def test_every_line_is_the_sum_of_its_jobs_to_the_unit(house: House) -> None:
    a_mixed_month(house)
    invoice = stories.invoice_of(house.vision, "2026-05")
    lines = stories.lines_of(invoice)
    assert len(lines) == 4  # two projects, GPU and CPU
    whole = table(house.carla, at(invoice, "csv"))
    for line in lines:
        rows = table(house.carla, at(invoice, f"lines/{line.position}/csv"))
        assert sum(map(resource_seconds, rows)) == seconds(line)
        assert rows == [row for row in whole if row["line"] == str(line.position)]
    assert sum(map(resource_seconds, whole)) == sum(map(seconds, lines))
    assert len(whole) == 120


def test_a_line_that_corrects_holds_the_difference_only(house: House) -> None:
    longer = builders.a_job(
        job_id="17", name="train", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 15:00"
    )
    builders.ingest(
        house.cluster, longer, builders.a_job(started="2026-04-09 10:00", ended="2026-04-09 11:00")
    )
    stories.close("2026-04", house.vision, on="2026-05-03", accept="test")
    invoice = stories.invoice_of(house.vision, "2026-04")
    april, correction = stories.lines_of(invoice)
    assert correction.correction
    rows = table(house.carla, at(invoice, f"lines/{correction.position}/csv"))
    assert [(row["job"], row["units"]) for row in rows] == [("17", "14400")]  # two GPUs, two hours more
    assert sum(map(resource_seconds, rows)) == seconds(correction) == 14_400
    assert "correction of March 2026" in page(house.carla, at(invoice))
    first = table(house.carla, at(house.invoice, "csv"))
    assert sum(map(resource_seconds, first)) == 23_400  # what March was billed stays as it was
    assert [row["job"] for row in table(house.carla, at(invoice, f"lines/{april.position}/csv"))] != ["17"]


def test_the_jobs_of_a_line_are_read_page_by_page_without_a_gap_or_a_repeat(house: House) -> None:
    a_mixed_month(house, jobs=90)
    invoice = stories.invoice_of(house.vision, "2026-05")
    line = max(
        stories.lines_of(invoice),
        key=lambda line: line.description == "GPU time, a100" and line.project == "vision",
    )
    seen, query = list[str](), ""
    for _ in range(6):
        html = page(house.carla, at(invoice, f"lines/{line.position}/{query}"), **{"HX-Request": "true"})
        seen += re.findall(r'href="/t/vision-lab/jobs/\d+/">([^<]+)<', html)
        more = re.search(r'href="[^"?]*(\?before=[^"]+)">More jobs', html)
        if more is None:
            break
        query = more[1]
    rows = table(house.carla, at(invoice, f"lines/{line.position}/csv"))
    assert len(seen) == len(set(seen)) == len(rows) == 60
    sizes = {row["job"]: resource_seconds(row) for row in rows}
    assert [sizes[job] for job in seen] == sorted(sizes.values(), reverse=True)


@pytest.mark.parametrize("cursor", ["x", "1_2_3", "1.000000_1_1.0", "9" * 99])
def test_a_cursor_that_is_none_begins_at_the_top(cursor: str, house: House) -> None:
    text = words(page(house.carla, at(house.invoice, f"lines/1/?before={cursor}")))
    assert "17 ben" in text


def test_the_invoices_are_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE", 1)
    house = a_house()
    builders.ingest(house.cluster, builders.a_job(started="2026-04-09 10:00", ended="2026-04-09 11:00"))
    stories.close("2026-04", house.vision, on="2026-05-03", accept="test")
    newer = stories.invoice_of(house.vision, "2026-04").number
    first = page(house.ann, "/t/vision-lab/invoices/")
    assert f">{newer}<" in first
    assert f">{house.invoice.number}<" not in first
    older = first.partition('href="?before=')[2].partition('"')[0]
    second = page(house.ann, f"/t/vision-lab/invoices/?before={older}")
    assert f">{house.invoice.number}<" in second
    assert "Older invoices" not in second


def test_a_line_of_the_invoice_that_is_not_there_is_not_found(house: House) -> None:
    for rest in ("lines/9/", "lines/9/csv"):
        assert signed_in(house.ann).get(at(house.invoice, rest)).status_code == 404


def test_no_cell_runs_as_a_formula(house: House) -> None:
    evil = [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        "\u3000=1",
        "＝1",
        "ordinary",
        "a\nb",
        'q"q',
        "  x",
        "\n",
    ]
    facts = [
        builders.a_job(
            job_id=f"e{n}",
            name=name,
            user=name,
            queue=name,
            started="2026-05-01 10:00",
            ended="2026-05-01 11:00",
        )
        for n, name in enumerate(evil)
    ]
    builders.ingest(house.cluster, *facts)
    stories.close("2026-05", house.vision, on="2026-07-01", accept="test")
    rows = {
        row["job"]: row for row in table(house.ann, at(stories.invoice_of(house.vision, "2026-05"), "csv"))
    }
    for n, name in enumerate(evil):
        assert rows[f"e{n}"]["name"] == cell(name), repr(name)
        assert rows[f"e{n}"]["user"] == cell(name)
        assert rows[f"e{n}"]["queue"] == cell(name)
    assert rows["e0"]["name"] == "'=1+1"


def test_the_pdf_is_the_one_that_was_sent(house: House) -> None:
    client = signed_in(house.carla)
    for name in ("pdf", "evidence"):
        waits = client.get(at(house.invoice, name))
        assert (waits.status_code, waits.headers["Retry-After"]) == (409, "10")
        assert "is not ready: " in waits.text
    tasks.render_document(invoice_id=house.invoice.pk)
    response = client.get(at(house.invoice, "pdf"))
    assert response.headers["Content-Type"] == "application/pdf"
    assert response.content == bytes(house.invoice.document.pdf)


def test_late_usage_does_not_change_what_stands_behind_an_issued_line(house: House) -> None:
    before = table(house.carla, at(house.invoice, "csv"))
    builders.ingest(
        house.cluster, builders.a_job(job_id="late", started="2026-03-09 10:00", ended="2026-03-09 11:00")
    )
    assert table(house.carla, at(house.invoice, "csv")) == before


def test_lines_without_jobs_stand_in_the_csv_behind_all_jobs(house: House) -> None:
    plan = house.vision.subscriptions.get().plan
    version = a_new_version(plan)
    version_terms.set_fee(version=version, name="=Access", amount=Decimal("93.00"))
    builders.ingest(house.cluster, builders.a_job(started="2026-05-09 10:00", ended="2026-05-09 11:00"))
    stories.close("2026-04", house.vision, on="2026-05-03", accept="test")
    stories.close("2026-05", house.vision, on="2026-06-03", accept="test")
    rows = table(house.carla, at(stories.invoice_of(house.vision, "2026-05"), "csv"))
    last = rows[-1]
    assert [row["kind"] for row in rows[:-1]] == ["usage"] * (len(rows) - 1)
    assert (last["kind"], last["description"], last["job"], last["amount"]) == (
        "fee",
        "'=Access",
        "",
        "93.00",
    )
    assert (last["service_from"], last["service_to"]) == ("2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z")


def a_new_version(plan: Plan) -> PlanVersion:
    """A version of the plan from May on, at 2.00 an hour."""
    version = plans.new_version(plan=plan, effective_from=date(2026, 5, 1), charges=["gpu"])
    plans.set_price(
        version=version,
        meter="gpu-hour",
        where={},
        model=PerUnit(Decimal("2.00")),
        valid_from=date(2026, 5, 1),
    )
    return version
