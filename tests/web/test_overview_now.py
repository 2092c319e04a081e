"""What the overview of a running period says of now: the budget in the plot, what runs, what to pay, what changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import Quota, QuotaEvery, QuotaMeasure, QuotaPeriod, SavedMethod
from billing.payments import gateway_access
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.tenants.models import Membership, Role, Tenant, User
from tests import builders, stories
from tests.web.clock import stand_at
from tests.web.house import page, plan, signed_in
from tests.web.test_overview import words
from tests.web.test_page_weight import is_question

pytestmark = pytest.mark.django_db

OVERVIEW = "/t/vision-lab/"


@dataclass
class Lab:
    cluster: Cluster
    tenant: Tenant
    ann: User  # an owner
    ben: User  # a member


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Half of March, at 20.00 a day: 280.00 so far, 620.00 expected. It is the 15th, ten o'clock."""
    cluster = builders.a_cluster()
    tenant = builders.a_tenant(plan=plan("standard", "2.00"), accounts=[(cluster, "vision")])
    days = [
        builders.a_job(gpus=10, started=f"2026-03-{n:02} 10:00", ended=f"2026-03-{n:02} 11:00")
        for n in range(1, 15)
    ]
    builders.ingest(cluster, *days, as_of="2026-03-15")
    stand_at(monkeypatch, "2026-03-15 10:00")
    return Lab(
        cluster,
        tenant,
        builders.a_person("ann@vision.example", tenant, Role.OWNER),
        builders.a_person("ben@vision.example", tenant, Role.MEMBER),
    )


def a_budget(lab: Lab, name: str, amount: int, **fields: Any) -> Quota:
    terms = QuotaTerms(
        **{"measure": QuotaMeasure.MONEY, "amount": Decimal(amount), "every": QuotaEvery.MONTH, **fields}
    )
    return quotas.set_quota(
        tenant=lab.tenant, name=name, terms=terms, by=Setter.OPERATOR, moment=builders.at("2026-03-01")
    )


def level(html: str) -> str:
    """The points of the line across the plot; "" for none."""
    match = re.search(r'ct-plot-level" points="([^"]+)"', html)
    return match[1] if match else ""


def test_the_tightest_budget_of_the_month_is_a_line_in_the_plot_and_a_row_of_its_table(lab: Lab) -> None:
    a_budget(lab, "wide", 2000)
    a_budget(lab, "tight", 1240)
    html = page(lab.ann, OVERVIEW)
    assert level(html) == "0,0 600,0"  # the plot goes up to it
    assert '<polyline class="ct-plot-line" points="0,200' in html
    assert "600,100" in html  # 620.00 of 1,240.00
    text = words(html)
    assert "about $620.00" in text
    assert "Budget tight: $1,240.00 for this period. All budgets" in text
    assert "Spend to date Forecast Budget tight Show as table" in text
    assert (
        "31 Mar 2026, expected $620.00 31 Mar 2026, band from $620.00 to $620.00 Budget tight $1,240.00"
        in text
    )
    assert "wide" not in text


def test_a_budget_below_the_forecast_is_crossed_by_it(lab: Lab) -> None:
    a_budget(lab, "tight", 310)
    html = page(lab.ben, OVERVIEW)
    assert level(html) == "0,100 600,100"  # half of what is expected
    assert "Budget tight: $310.00 for this period." in words(html)


def test_what_the_month_before_left_belongs_to_the_budget(lab: Lab) -> None:
    quota = a_budget(lab, "tight", 500, carry_over=Decimal(100))
    QuotaPeriod.objects.create(
        tenant=lab.tenant, quota=quota, start=builders.at("2026-03-01"), end=builders.at("2026-04-01"),
        amount=500, carried=120, used=280, counted_on=0, evaluated_at=builders.at("2026-03-15"),
    )  # fmt: skip
    assert "Budget tight: $620.00 for this period." in words(page(lab.ann, OVERVIEW))


@pytest.mark.parametrize(
    "fields",
    [
        {"every": QuotaEvery.YEAR},
        {"every": QuotaEvery.WEEK},
        {"measure": QuotaMeasure.GPU_HOURS},
        {"user": "ben"},
    ],
)
def test_a_budget_of_something_else_is_none_of_the_plots(lab: Lab, fields: dict[str, Any]) -> None:
    a_budget(lab, "other", 100, **fields)
    html = page(lab.ann, OVERVIEW)
    assert level(html) == ""
    assert "Budget other" not in html
    assert "Set a budget for the month" in html
    assert "/t/vision-lab/budgets/#budget-form" in html


def test_only_owners_are_shown_where_to_set_one(lab: Lab) -> None:
    assert "Set a budget" not in page(lab.ben, OVERVIEW)


def test_a_budget_stands_where_it_is_too_early_for_a_forecast(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_budget(lab, "tight", 500)
    builders.ingest(
        lab.cluster, builders.a_job(started="2026-04-01 00:00", ended="2026-04-01 01:00"), as_of="2026-04-02"
    )
    stand_at(monkeypatch, "2026-04-02 10:00")
    text = words(page(lab.ann, OVERVIEW))
    assert "Budget tight: $500.00 for this period." in text


def running(job_id: str = "41", **fields: Any) -> UsageFact:
    """Two GPUs since the morning before, seen until the cluster's last reading."""
    values: dict[str, Any] = {
        "started": "2026-03-14 20:00", "ended": None, "seen_until": "2026-03-15 00:00", "state": "RUNNING",
        "gpus": 2, **fields,
    }  # fmt: skip
    return builders.a_job(job_id=job_id, **values)


def test_what_runs_is_a_tile_that_leads_to_the_page_that_lists_it(lab: Lab) -> None:
    builders.ingest(
        lab.cluster,
        running(),
        running("42", gpus=1, gpu_share=(1, 2)),
        running("43", seen_until="2026-03-14 21:00"),  # which the last reading did not see
        as_of="2026-03-15",
    )
    html = page(lab.ben, OVERVIEW)
    assert "Running now 2 jobs 2.50 GPUs, as of 15 Mar 2026, 00:00" in words(html)
    assert 'href="/t/vision-lab/live/">2.50 GPUs' in html
    live = words(page(lab.ben, "/t/vision-lab/live/"))
    assert "Running 2 jobs 0 waiting GPUs in use 2.50" in live


def test_nothing_runs_and_one_gpu(lab: Lab) -> None:
    assert "Running now 0 jobs 0 GPUs, as of 15 Mar 2026, 00:00" in words(page(lab.ben, OVERVIEW))
    builders.ingest(lab.cluster, running(gpus=1), as_of="2026-03-15")
    assert "Running now 1 job 1 GPU, as of" in words(page(lab.ben, OVERVIEW))


def test_a_period_that_is_over_says_nothing_of_now(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_at(monkeypatch, "2026-04-15 10:00")
    assert "Running now" not in page(lab.ben, f"{OVERVIEW}?period=2026-03-01")


def test_a_member_who_sees_their_own_jobs_is_told_of_these_alone(lab: Lab) -> None:
    builders.ingest(lab.cluster, running(user="ben"), running("42", user="zoe", gpus=8), as_of="2026-03-15")
    a_budget(lab, "tight", 500)
    Tenant.objects.update(members_see_own=True)
    assert "Running now" not in page(lab.ben, OVERVIEW)  # nobody knows what he is called on the cluster
    Membership.objects.filter(user=lab.ben).update(scheduler_users=["ben"])
    text = words(page(lab.ben, OVERVIEW))
    assert "Running now 1 job 2 GPUs, as of 15 Mar 2026, 00:00" in text
    assert "tight" not in text
    assert "What changed" not in text


def february(lab: Lab) -> None:
    """On the 10th Ben used 60 hours, Ada 40; on the 20th Zoe 500, which March has not reached. Nobody else did."""
    used = [("ben", 60, "10"), ("ada", 40, "10"), ("zoe", 500, "20")]
    builders.ingest(
        lab.cluster,
        *(
            builders.a_job(
                job_id=f"f-{user}", user=user, gpus=hours, started=f"2026-02-{day} 10:00", ended=f"2026-02-{day} 11:00"
            )
            for user, hours, day in used
        ),
        as_of="2026-03-15",
    )  # fmt: skip


def card(html: str) -> str:
    return html.partition('id="changed-title"')[2].partition("</section>")[0]


def test_the_largest_reasons_of_the_change_to_the_month_before_each_open_to_their_jobs(lab: Lab) -> None:
    """March to the 15th: Ben's 140 hours and 2 of four others; February to the 15th: Ben's 60 and Ada's 40."""
    february(lab)
    others = [
        builders.a_job(user=f"u{n}", gpus=n, started="2026-03-05 10:00", ended="2026-03-05 11:00")
        for n in range(1, 5)
    ]
    builders.ingest(lab.cluster, *others, as_of="2026-03-15")
    html = card(page(lab.ann, OVERVIEW))
    text = words(html)
    assert "+$100.00 +50 % 1 Mar 2026 – 15 Mar 2026, compared with 1 Feb 2026 – 15 Feb 2026." in text
    assert "ben · a100 Volume: 60.00 → 140.00 GPU-hours +$160.00" in text
    assert "ada · a100 Volume: no longer used: 40.00 GPU-hours before −$80.00" in text
    assert "u4 · a100 Volume: new: 4.00 GPU-hours +$8.00" in text
    assert "3 others Smaller reasons, together +$12.00 Usage alone" in text
    assert (
        "/t/vision-lab/jobs/?from=2026-03-01&amp;through=2026-03-15&amp;user=ben&amp;gpu_model=a100" in html
    )
    assert (
        "/t/vision-lab/jobs/?from=2026-02-01&amp;through=2026-02-15&amp;user=ada&amp;gpu_model=a100" in html
    )
    (why,) = re.findall(r'href="([^"]+)">Why did it change', html)
    assert "Reasons for +$100.00" in words(page(lab.ann, unescape(why)))


def test_without_a_month_before_nothing_is_compared(lab: Lab) -> None:
    text = words(card(page(lab.ben, OVERVIEW)))
    assert "There are no charges of 1 Feb 2026 – 15 Feb 2026 to compare with." in text
    assert "+$" not in text


def test_a_month_that_is_over_is_compared_with_the_whole_one_before(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    february(lab)
    stand_at(monkeypatch, "2026-04-15 10:00")
    text = words(card(page(lab.ann, f"{OVERVIEW}?period=2026-03-01")))
    assert "−$920.00 −76.7 % 1 Mar 2026 – 31 Mar 2026, compared with 1 Feb 2026 – 28 Feb 2026." in text


def test_a_running_period_with_all_of_it_takes_no_more_than_20_queries(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a forecast, a budget, running jobs, an open invoice and a saved card."""
    february(lab)
    stories.close("2026-02", lab.tenant, on="2026-03-10")
    builders.ingest(lab.cluster, running(), as_of="2026-03-15")
    a_budget(lab, "tight", 500)
    monkeypatch.setattr(gateway_access, "is_configured", lambda: True)
    SavedMethod.objects.create(
        tenant=lab.tenant, external_id="pm_1", kind="card", brand="visa", last4="4242", exp_month=4,
        exp_year=2030, preferred=True, added_at=builders.at("2026-03-01"),
    )  # fmt: skip
    client = signed_in(lab.ann)
    with CaptureQueriesContext(connection) as queries:
        text = words(client.get(OVERVIEW).content.decode())
    for part in ("Running now 1 job", "Budget tight", "Pay $1,200.00 with", "What changed", "Likely range"):
        assert part in text
    assert sum(is_question(query["sql"]) for query in queries) <= 20
