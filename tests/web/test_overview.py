"""What a tenant sees first: its period at a glance."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from html import unescape
from typing import Any

import pytest

from billing.catalog import version_terms
from billing.models import BillingPeriod
from billing.queries import overview as reading
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests import builders, sharing, stories
from tests.terms import TWO_DOLLARS, a_version
from tests.web.clock import stand_at
from tests.web.house import House, a_house, page, plan, signed_in

pytestmark = pytest.mark.django_db

MARCH = "/t/vision-lab/?period=2026-03-01"

begun, house = sharing.fixtures(a_house, "house")


def words(html: str) -> str:
    """The page's text as it opens, with single spaces: what a figure means stands behind its ⓘ."""
    closed = re.sub(r'<details class="ct-help">.*?</details>|<script.*?</script>', " ", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", closed)).split())


def chart(html: str) -> dict[str, dict[str, list[str]]]:
    """Per measure the series, each with its text of every day that has begun, as in the table behind the chart."""
    measures = {}
    for key, table in zip(
        ("hours", "spend"),
        re.findall(r"<table class=\"table table-sm ct-numbers.*?</table>", html, re.DOTALL),
        strict=False,
    ):
        names = [unescape(name) for name in re.findall(r'<th scope="col">([^<]*)</th>', table)][1:-1]
        rows = [
            re.findall(r"<td>([^<]+)</td>", row) for row in re.findall(r"<tr><th scope=\"row.*?</tr>", table)
        ]
        measures[key] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return measures


def drawn_heights(html: str, measure: str) -> list[int]:
    """Of the columns that are drawn, in units of SVG."""
    figure = html.partition(f"ct-of-{measure}")[2].partition("</figure>")[0]
    return [
        sum(int(height) for height in re.findall(r'height="(\d+)"', column))
        for column in re.findall(r"<title>.*?</a>", figure, re.DOTALL)
    ]


def a_lab(**fields: Any) -> Tenant:
    return builders.a_tenant(
        plan=plan("standard", "2.00"), accounts=[(builders.a_cluster(), "vision")], **fields
    )


def test_march_shows_what_ann_spent(house: House) -> None:
    text = words(page(house.ann, "/t/vision-lab/?period=2026-03-01"))
    assert "Overview March 2026" in text
    assert "Spend $13.00" in text
    assert "GPU-hours 6.50" in text
    assert "Jobs 2 started in this period" in text
    assert "Open invoices $13.00 1 to pay, the first was due 17 Apr 2026" in text
    assert "Data through 20 Apr 2026, 00:00" in text


def test_a_payment_settles_what_is_open(house: House) -> None:
    house.invoice.payments.create(
        tenant=house.vision, amount=1300, received_on="2026-04-10", reference="RF1", recorded_by="op"
    )
    text = words(page(house.ann, "/t/vision-lab/"))
    assert "Open invoices None everything is paid" in text
    assert "Paid" in text


def test_a_tenant_with_a_wallet_is_told_what_is_open_beside_it(house: House) -> None:
    assert house.wallet.balance == 0
    text = words(page(house.ann, "/t/vision-lab/"))
    assert "Prepaid balance $0.00 in 1 wallet Open invoices $13.00 1 to pay" in text
    house.invoice.payments.create(
        tenant=house.vision, amount=1300, received_on="2026-04-10", reference="RF1", recorded_by="op"
    )
    text = words(page(house.ann, "/t/vision-lab/"))
    assert "Prepaid balance $0.00 in 1 wallet" in text
    assert "Open invoices" not in text


def test_the_running_period_is_compared_with_the_same_days() -> None:
    tenant = a_lab()
    builders.ingest(
        builders.a_cluster(),
        builders.a_job(started="2026-03-02 00:00", ended="2026-03-02 10:00"),
        builders.a_job(started="2026-03-20 00:00", ended="2026-03-20 10:00"),
        builders.a_job(started="2026-04-03 00:00", ended="2026-04-03 15:00"),
    )
    march, april = periods(tenant)
    with tenant_scope(tenant):
        running = reading.overview(tenant, april, march, today=day("2026-04-10"))
        over = reading.overview(tenant, april, march, today=day("2026-05-02"))
    assert running.before is not None
    assert over.before is not None
    assert running.before.amount == 20  # the second of March, not the twentieth
    assert over.before.amount == 40


def test_a_longer_period_is_not_compared_beyond_the_end_of_a_shorter_one() -> None:
    tenant = a_lab()
    builders.ingest(
        builders.a_cluster(),
        builders.a_job(started="2026-02-28 00:00", ended="2026-02-28 10:00"),
        builders.a_job(started="2026-03-31 00:00", ended="2026-03-31 01:00"),
    )
    february, march = periods(tenant)
    with tenant_scope(tenant):
        overview = reading.overview(tenant, march, february, today=day("2026-03-30"))
    assert overview.before is not None
    assert overview.before.gpu_seconds == 36_000


def test_the_chart_splits_a_job_over_the_days_of_the_tenants_zone() -> None:
    tenant = a_lab(timezone="Asia/Tokyo")  # nine hours ahead: its day begins at 15:00 UTC
    ann = builders.a_person("ann@vision.example", tenant)
    builders.ingest(
        builders.a_cluster(), builders.a_job(gpus=4, started="2026-03-02 12:00", ended="2026-03-02 18:00")
    )
    html = page(ann, "/t/vision-lab/?period=2026-03-01")
    drawn = chart(html)
    assert drawn["hours"]["vision"][:4] == ["0.00", "12.00", "12.00", "0.00"]
    assert drawn["spend"]["vision"][:4] == ["$0.00", "$24.00", "$24.00", "$0.00"]
    assert len(drawn["hours"]["vision"]) == 31
    assert drawn_heights(html, "hours") == [120, 120]  # of 200, which are 20 GPU-hours
    assert drawn_heights(html, "spend") == [120, 120]  # of 40 dollars
    assert "?from=2026-03-02&amp;through=2026-03-02" in html


def test_the_smallest_projects_share_one_colour() -> None:
    cluster = builders.a_cluster()
    tenant = builders.a_tenant(plan=plan("standard", "2.00"), accounts=[(cluster, f"p{n}") for n in range(9)])
    ann = builders.a_person("ann@vision.example", tenant)
    builders.ingest(cluster, *(builders.a_job(account=f"p{n}", gpus=10 - n) for n in range(9)))
    drawn = chart(page(ann, MARCH))
    assert list(drawn["hours"]) == ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "Other"]
    assert drawn["hours"]["Other"][1] == "5.00"  # 3 and 2 GPUs for an hour
    assert list(drawn["spend"]) == list(drawn["hours"])


def test_what_no_price_covers_is_said_aloud() -> None:
    tenant = a_lab()
    ann = builders.a_person("ann@vision.example", tenant)
    builders.ingest(builders.a_cluster(), builders.a_job(), builders.a_job(gpu_model="mi300x", gpus=12))
    text = words(page(ann, MARCH))
    assert "No price covers 12.00 GPU-hours on mi300x of vision." in text
    assert "Spend $2.00" in text
    assert "vision mi300x 12.00 Unpriced" in text


def test_an_expensive_pod_stands_beside_the_job_that_it_is_a_part_of() -> None:
    tenant = a_lab()
    ann = builders.a_person("ann@vision.example", tenant)
    pod = builders.a_job(job_id="vision/llama-worker-0", name="llama", user="ben")
    builders.ingest(builders.a_cluster(), pod)
    assert "vision/llama-worker-0 llama ben" in words(page(ann, MARCH))


def test_a_plan_that_waives_gpus_says_so() -> None:
    cluster = builders.a_cluster()
    free = builders.a_plan(
        "cpu-only", charges=["cpu"], prices=[("cpu-core-hour", {}, "0.01", builders.LONG_AGO)]
    )
    tenant = builders.a_tenant(plan=free, accounts=[(cluster, "vision")])
    ann = builders.a_person("ann@vision.example", tenant)
    builders.ingest(cluster, builders.a_job(cpu_milli=8000))
    text = words(page(ann, MARCH))
    assert "Spend $0.08" in text
    assert "vision a100 1.00 Waived" in text


def test_a_lab_without_usage_is_told_what_comes_next() -> None:
    ann = builders.a_person("ann@vision.example", a_lab())
    text = words(page(ann, "/t/vision-lab/"))
    assert "No usage yet" in text
    assert "Spend" not in text


def test_one_can_go_from_period_to_period_and_no_further(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_at(monkeypatch, "2026-03-20 10:00")
    client_page = page(house.ann, "/t/vision-lab/")
    assert "March 2026" in client_page
    assert 'href="?period=' not in client_page
    stand_at(monkeypatch, "2026-05-20 10:00")
    builders.ingest(house.cluster, builders.a_job(started="2026-05-02 10:00", ended="2026-05-02 11:00"))
    may = page(house.ann, "/t/vision-lab/")
    assert "May 2026" in may
    assert 'href="?period=2026-04-01"' in may
    april = page(house.ann, "/t/vision-lab/?period=2026-04-01")
    assert 'href="?period=2026-03-01"' in april
    assert 'href="?period=2026-05-01"' in april
    assert "No jobs in this period." in april


def test_who_has_used_nothing_this_month_sees_it_with_nothing_spent(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last job ran in March, and no close makes periods by itself."""
    stand_at(monkeypatch, "2026-05-20 10:00")
    kept = BillingPeriod.objects.count()
    for person in (house.ann, house.ben):
        may = page(person, "/t/vision-lab/")
        assert "May 2026" in may
        assert 'href="?period=2026-04-01"' in may
    text = words(page(house.ann, "/t/vision-lab/"))
    assert "Spend" in text
    assert "GPU-hours 0.00" in text
    assert "Jobs 0 started in this period" in text
    assert 'href="?period=2026-05-01"' in page(house.ann, "/t/vision-lab/?period=2026-04-01")
    assert "Spend $13.00" in words(page(house.ann, MARCH))
    assert BillingPeriod.objects.count() == kept


def test_a_fee_of_a_month_without_use_is_in_its_preview(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fee of 50.00, billed in advance: what the close of June will bill of July is only supposed, too."""
    version = a_version(TWO_DOLLARS)
    version_terms.set_fee(version=version, name="Platform fee", amount=Decimal("50.00"), in_advance=True)
    cluster = builders.a_cluster()
    tenant = builders.a_tenant(plan=version.plan, plan_from=date(2026, 3, 1), accounts=[(cluster, "vision")])
    ann = builders.a_person("ann@vision.example", tenant)
    builders.ingest(cluster, builders.a_job(started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    stories.close("2026-03", tenant, accept="test")
    stand_at(monkeypatch, "2026-06-20 10:00")
    text = words(page(ann, "/t/vision-lab/"))
    assert "Platform fee $50.00" in text
    assert "June 2026" in text


@pytest.mark.parametrize("period", ["1999-01-01", "x", "2026-03-02", "' OR 1=1"])
def test_a_period_that_is_none_is_not_found(period: str) -> None:
    house = a_house(close=False)
    assert signed_in(house.ann).get(f"/t/vision-lab/?period={period}").status_code == 404


def test_the_most_expensive_job_stands_first(house: House) -> None:
    html = page(house.ann, "/t/vision-lab/?period=2026-03-01")
    assert html.index(f"/jobs/{house.record('17')}/") < html.index(f"/jobs/{house.record('18')}/")
    assert "$12.00" in html
    assert "$1.00" in html


def periods(tenant: Tenant) -> list[BillingPeriod]:
    return list(tenant.periods.order_by("start"))


def day(text: str) -> date:
    return date.fromisoformat(text)


def test_a_page_adds_up_to_the_invoice() -> None:
    """Three lines of 0.336666… are 1.02 when each is rounded, 1.01 when their sum is."""
    cluster = builders.a_cluster()
    tenant = builders.a_tenant(
        plan=plan("standard", "1.00"), accounts=[(cluster, "vision"), (cluster, "robots"), (cluster, "maps")]
    )
    ann = builders.a_person("ann@vision.example", tenant)
    third = {"started": "2026-03-02 10:00", "ended": "2026-03-02 10:20:12"}
    builders.ingest(
        cluster, *(builders.a_job(account=name, **third) for name in ("vision", "robots", "maps"))
    )
    stories.close("2026-03", tenant, accept="test")
    assert stories.total(stories.invoice_of(tenant, "2026-03")) == "1.02"
    assert "Spend $1.02" in words(page(ann, MARCH))


def test_a_job_that_began_before_the_period_is_among_its_most_expensive() -> None:
    tenant = a_lab()
    ann = builders.a_person("ann@vision.example", tenant)
    builders.ingest(
        builders.a_cluster(),
        builders.a_job(job_id="long", started="2026-03-30 10:00", ended="2026-04-02 10:00"),
        builders.a_job(job_id="march", started="2026-03-30 10:00", ended="2026-03-31 10:00"),
    )
    april = page(ann, "/t/vision-lab/?period=2026-04-01")
    assert ">long</a>" in april
    assert ">march</a>" not in april
    assert "Jobs 0 started in this period" in words(april)


def test_the_page_adds_up_to_the_invoice_and_not_to_a_cent_beside_it() -> None:
    cluster = builders.a_cluster()
    lab = builders.a_tenant(
        plan=plan("odd", "1.11"),
        accounts=[(cluster, "vision"), (cluster, "speech"), (cluster, "robots")],
    )
    builders.ingest(  # 20 minutes at 1.11 are 0.37 each: with 16 seconds more, 0.3749 each, 1.12 in all
        cluster,
        *[
            builders.a_job(account=account, started="2026-03-02 10:00", ended="2026-03-02 10:20:16")
            for account in ("vision", "speech", "robots")
        ],
        as_of="2026-04-02",
    )
    stories.close("2026-03")
    assert stories.invoice_of(lab, "2026-03").total == 3 * 37
    ann = builders.a_person(tenant=lab)
    assert "Spend $1.11" in words(page(ann, "/t/vision-lab/?period=2026-03-01"))
