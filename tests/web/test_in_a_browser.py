"""Ann's way through the pages in a real browser, at both widths: nothing complains, nothing is cut off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from portal.core.tenants.models import User
from tests import builders
from tests.web.browser import SKIP_REASON, chromium, visit
from tests.web.house import a_house

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


def sign_in(page: Page, site: str) -> None:
    page.goto(f"{site}/t/vision-lab/")
    page.fill("[name=login]", "ann@vision.example")
    page.fill("[name=password]", builders.PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url("**/t/vision-lab/")


@pytest.mark.sample
@pytest.mark.parametrize("width", [1440, 390])
def test_ann_follows_an_amount_down_to_its_jobs(live_server: LiveServer, tmp_path: Path, width: int) -> None:
    house = a_house()
    number = house.invoice.number
    many = (
        builders.a_job(job_id=f"b{n:02}", started="2026-03-20 10:00", ended="2026-03-20 10:06")
        for n in range(60)
    )
    builders.ingest(house.cluster, *many)
    with chromium() as browser, visit(browser, width=width) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/?period=2026-03-01")
        expect(page.locator(".ct-of-hours")).to_be_visible()
        expect(page.locator(".ct-of-spend")).to_be_hidden()
        page.locator("label[for=measure-spend]").click()
        expect(page.locator(".ct-of-spend")).to_be_visible()
        expect(page.locator(".ct-of-hours")).to_be_hidden()
        assert seen.overflow() <= 0

        page.goto(f"{live_server.url}/t/vision-lab/invoices/{number}/")
        page.get_by_text("2 jobs").click()
        expect(page.get_by_text("exactly 23,400 GPU-seconds")).to_be_visible()
        assert page.url.endswith(f"/{number}/")  # opened in place
        page.get_by_role("link", name="17", exact=True).click()
        expect(page.get_by_role("heading", name="17")).to_be_visible()
        assert seen.overflow() <= 0

        page.goto(f"{live_server.url}/t/vision-lab/jobs/")
        rows = page.locator("#rows tr:not(.ct-more)")
        expect(rows).to_have_count(50)
        page.get_by_role("link", name="More jobs").click()
        expect(rows).to_have_count(62)
        page.fill("#q", "train")
        expect(rows).to_have_count(1)
        assert "q=train" in page.url
        assert seen.overflow() <= 0
        assert seen.complaints() == []


@pytest.mark.parametrize("width", [1440, 1280, 1024, 390])
def test_no_amount_of_what_was_spent_is_cut_off(live_server: LiveServer, width: int) -> None:
    house = a_house(close=False)
    for n, name in enumerate(
        ("Understanding-long-sequences-of-proteins", "Vision and language models, phase 2")
    ):
        builders.own(house.vision, house.cluster, f"account-{n}", project=name)
        jobs = (builders.a_job(account=f"account-{n}", gpus=8, job_id=f"{n}", ended="2026-03-09 10:00"),)
        builders.ingest(house.cluster, *jobs)
    with chromium() as browser, visit(browser, width=width) as seen:
        sign_in(seen.page, live_server.url)
        seen.page.goto(f"{live_server.url}/t/vision-lab/?period=2026-03-01")
        table = seen.page.locator(".ct-spend")
        expect(table).to_be_visible()
        assert table.evaluate("each => each.scrollWidth - each.parentElement.clientWidth") <= 0
        assert seen.overflow() <= 0


@pytest.mark.parametrize("width", [1440, 1280, 1200, 1024])
@pytest.mark.parametrize("language", ["en", "de"])
def test_hours_and_costs_of_the_dearest_jobs_stand_whole(
    live_server: LiveServer, language: str, width: int
) -> None:
    """The column of costs stays in sight where a table is wider than its card: it must not cover the hours."""
    house = a_house(close=False)
    User.objects.filter(pk=house.ann.pk).update(language=language)
    builders.own(house.vision, house.cluster, "model", project="Foundation model")
    builders.ingest(
        house.cluster,
        *(
            builders.a_job(
                account="model",
                user="mkowalski",
                name="continue-pretrain-7b",
                job_id=str(106_985 + n),
                gpus=16,
                started="2026-03-01 10:00",
                ended="2026-03-09 10:00" if n else None,
                seen_until=None if n else "2026-03-20 10:00",
                state="COMPLETED" if n else "RUNNING",
            )
            for n in range(3)
        ),
    )
    with chromium() as browser, visit(browser, width=width) as seen:
        sign_in(seen.page, live_server.url)
        seen.page.goto(f"{live_server.url}/t/vision-lab/?period=2026-03-01")
        table = seen.page.locator("section[aria-labelledby=top-jobs-title] table")
        expect(table.locator(".ct-sofar")).to_be_visible()
        assert table.evaluate("each => each.scrollWidth - each.parentElement.clientWidth") <= 0


def test_a_session_that_ended_is_begun_again_where_it_was(live_server: LiveServer) -> None:
    a_house()
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/jobs/?user=ben")
        page.context.clear_cookies()
        page.fill("#q", "train")
        page.wait_for_url("**/accounts/login/?next=/t/vision-lab/jobs/**")
        page.fill("[name=login]", "ann@vision.example")
        page.fill("[name=password]", builders.PASSWORD)
        page.click("main button[type=submit]")
        page.wait_for_url("**/t/vision-lab/jobs/?user=ben")


def test_all_of_it_works_without_scripts(live_server: LiveServer) -> None:
    house = a_house()
    number = house.invoice.number
    with chromium() as browser, visit(browser, scripts=False) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/invoices/{number}/")
        page.get_by_text("2 jobs").click()
        expect(page.get_by_text("exactly 23,400 GPU-seconds")).to_be_visible()
        page.goto(f"{live_server.url}/t/vision-lab/jobs/")
        page.fill("#q", "train")
        page.get_by_role("button", name="Apply").click()
        expect(page.locator("#rows tr:not(.ct-more)")).to_have_count(1)
