"""Op writes a version of a plan in a browser, with and without scripts, in every window; Ben asks for a quote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page

from tests.builders import PASSWORD
from tests.terms import GRADUATED, VOLUME, a_version
from tests.web import previewing
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit
from tests.web.house import a_house
from tests.web.test_plans import DRAFT

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
    pytest.mark.django_db(transaction=True),
]

ADDRESSES = (
    "/operator/plans/",
    "/operator/plans/bulk/",
    "/operator/plan-editor/",
    "/operator/plan-editor/?template=nights",
    "/operator/plan-editor/?plan=bulk",
    "/t/vision-lab/quote/?hours=12&gpus=4&gpu_model=a100",
)


def test_a_version_is_written_looked_at_and_published(live_server: LiveServer) -> None:
    a_house()
    with chromium() as browser, visit(browser, scripts=False) as seen:
        page = seen.page
        _sign_in(page, live_server.url, "/operator/plans/vision-deal/")
        page.click("text=New version")
        page.click("button:text('TOML')")
        page.fill("#text", DRAFT)
        page.click("button:text('Form')")
        page.click("button:text('Add tier')")
        page.wait_for_selector("#price\\.0\\.tiers\\.2")
        page.click(".btn-primary:text('Preview')")
        page.wait_for_selector("text=Waiting for a worker.")
        previewing.work_beside()
        page.click("text=Reload to see the progress.")
        page.wait_for_selector("text=Effect on January 2026 to March 2026")
        assert page.is_visible("text=Above 100 GPU-hours the total drops")
        page.click("text=Show as table")
        assert page.is_visible("text=just above 100")
        page.click("button:text('Publish from 1 Jan 2030')")
        page.wait_for_selector("text=Plan vision-deal from 2030-01-01 published.")
        assert seen.complaints() == []


def test_with_scripts_the_fields_of_a_price_follow_its_model(live_server: LiveServer) -> None:
    a_house()
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        _sign_in(page, live_server.url, "/operator/plan-editor/?plan=vision-deal")
        page.fill("[name='plan.from']", "2030-01-01")
        page.select_option("[name='plan.price.0.model']", "package")
        page.wait_for_selector("[name='plan.price.0.package']")
        assert page.query_selector("[name='plan.price.0.unit_price']") is None
        assert page.input_value("[name='plan.from']") == "2030-01-01"
        assert seen.complaints() == []


def test_the_pages_fit_every_window(live_server: LiveServer) -> None:
    a_house()
    a_version(VOLUME, (GRADUATED, {"gpu_model": ["h100"]}), name="bulk")
    complaints = []
    with chromium() as browser:
        for width in WIDTHS:
            for theme in THEMES:
                with visit(browser, width=width, theme=theme) as seen:
                    _sign_in(seen.page, live_server.url, "/operator/plans/")
                    for address in ADDRESSES:
                        seen.page.goto(f"{live_server.url}{address}")
                        complaints += seen.complaints()
                        if seen.overflow() > 0:
                            complaints.append(f"{address} {width} {theme}: {seen.overflow()} px too wide")
    assert complaints == []


def _sign_in(page: Page, url: str, address: str) -> None:
    page.goto(f"{url}{address}")
    page.fill("[name=login]", "op@cluster.example")
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(f"**{address}")
