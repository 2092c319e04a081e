"""The live page in a real browser: it refreshes by itself and leaves the reader where they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from playwright.sync_api import Page, expect

from clusters.connectors.base import UsageFact
from tests import builders
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, chromium, visit
from tests.web.house import House, a_house
from tests.web.test_live import LIVE, running, waiting

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]

HALF_A_MINUTE = 31_000  # milliseconds, and one second


def arrive(page: Page, site: str) -> None:
    page.goto(f"{site}{LIVE}")
    page.fill("[name=login]", "ben@vision.example")
    page.fill("[name=password]", builders.PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(f"**{LIVE}")


def meanwhile(house: House, *rows: UsageFact) -> None:
    """Usage comes in while a page is open: in a thread, since the browser's is busy with it."""

    def ingest() -> None:
        builders.ingest(house.cluster, *rows)
        connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(ingest).result()


def test_it_refreshes_by_itself_and_the_reader_stays(live_server: LiveServer) -> None:
    house = a_house()
    builders.ingest(house.cluster, running(), running("42"))
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        page.clock.install()
        arrive(page, live_server.url)
        expect(page.locator("#live")).to_contain_text("$8.00")
        page.get_by_role("link", name="41", exact=True).focus()
        meanwhile(house, running(seen_until="2026-05-06 12:15"), running("42", seen_until="2026-05-06 12:15"))
        page.clock.run_for(HALF_A_MINUTE)
        expect(page.locator("#live")).to_contain_text("$9.00")
        expect(page.get_by_role("link", name="41", exact=True)).to_be_focused()
        expect(page.locator("[data-live-says]")).to_be_empty()  # the totals are what they were

        meanwhile(house, waiting())
        page.clock.run_for(HALF_A_MINUTE)
        expect(page.locator("[data-live-says]")).to_have_text("2 jobs running, 1 waiting, $8.00 per hour.")

        page.get_by_role("button", name="Pause").click()
        meanwhile(house, waiting("52"))
        page.clock.run_for(HALF_A_MINUTE)
        expect(page.locator("[data-live-state]")).to_have_text("Paused")
        expect(page.get_by_role("link", name="52", exact=True)).to_have_count(0)
        page.get_by_role("link", name="Refresh").click()
        expect(page.get_by_role("link", name="52", exact=True)).to_be_visible()
        assert seen.complaints() == []


def test_it_works_without_scripts(live_server: LiveServer) -> None:
    house = a_house()
    builders.ingest(house.cluster, running())
    with chromium() as browser, visit(browser, scripts=False) as seen:
        arrive(seen.page, live_server.url)
        expect(seen.page.get_by_role("button", name="Pause")).to_be_hidden()
        meanwhile(house, waiting())
        seen.page.get_by_role("link", name="Refresh").click()
        expect(seen.page.get_by_role("link", name="51", exact=True)).to_be_visible()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [*WIDTHS, 1000])
def test_nothing_is_cut_off_or_complained_of(live_server: LiveServer, width: int, theme: Theme) -> None:
    house = a_house()
    builders.own(
        house.vision, builders.a_cluster("gpu2"), "vision", project="A project with a very long name indeed"
    )
    long: dict[str, Any] = {
        "name": "a-very-long-name-" * 5, "user": "somebody.with.a.long.name", "qos": "preemptible",
        "queue": "batch-large",
    }  # fmt: skip
    slices = {"gpus": 3, "gpu_share": (1, 7), "mig_profile": "1g.5gb", "cpu_milli": 224_000}
    builders.ingest(
        builders.a_cluster("gpu2"),
        running("8012944_24093", **long, **slices, memory_mib=3_932_160, nodes=16),
        waiting("8012944_24094", **long),
        running("lost", started="2026-05-05 10:00", seen_until="2026-05-05 11:00"),
    )
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        arrive(seen.page, live_server.url)
        assert seen.overflow() <= 0
        assert seen.complaints() == []
