"""Op has the charges of all tenants written, watches it, and downloads the file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page

from billing.models import FocusExport, FocusFormat
from billing.reports import focus_exports
from tests.builders import PASSWORD, at
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit
from tests.web.house import House, a_house
from tests.web.test_close_in_a_browser import meanwhile

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
    pytest.mark.django_db(transaction=True),
]

PAGE = "/operator/exports/focus/"


@pytest.fixture
def house(live_server: LiveServer) -> House:
    return a_house()


def sign_in(page: Page, url: str) -> None:
    page.goto(url)
    page.fill("[name=login]", "op@cluster.example")
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(f"**{PAGE}")


def write() -> None:
    focus_exports.perform_next(clock=lambda: datetime.now(UTC).replace(microsecond=0))


def test_a_file_is_watched_while_it_is_written_and_then_downloaded(
    live_server: LiveServer, house: House, tmp_path: Path
) -> None:
    with chromium() as browser, visit(browser) as seen:
        sign_in(seen.page, f"{live_server.url}{PAGE}")
        seen.page.fill("[name=period]", "2026-03")
        seen.page.click("button[value=csv]")
        seen.page.wait_for_selector("text=March 2026: waiting for a worker.")
        meanwhile(lambda: FocusExport.objects.update(started_at=datetime.now(UTC), done=1, total=2))
        seen.page.wait_for_selector("text=Writing March 2026: 1 of 2 tenants.")
        meanwhile(write)
        with seen.page.expect_download() as downloading:
            seen.page.click("a:text-is('Download')")
        downloading.value.save_as(tmp_path / "march.csv")
        assert b"vision-lab" in (tmp_path / "march.csv").read_bytes()
        assert seen.complaints() == []


def test_the_page_fits_every_window(live_server: LiveServer, house: House, pictures: Path | None) -> None:
    complaints = []
    with chromium() as browser:
        for state in ("empty", "one of each"):
            if state != "empty":
                meanwhile(lambda: one_of_each(house.op.email))
            for width in WIDTHS:
                for theme in THEMES:
                    with visit(browser, width=width, theme=theme) as seen:
                        sign_in(seen.page, f"{live_server.url}{PAGE}")
                        if pictures:
                            path = pictures / f"focus-exports-{state}-{width}-{theme}.png"
                            seen.page.screenshot(path=path, full_page=True)
                        complaints += seen.complaints()
                        if seen.overflow() > 0:
                            complaints.append(f"{state} {width} {theme}: {seen.overflow()} px too wide")
    assert complaints == []


def one_of_each(who: str) -> None:
    """A file that is ready, one that could not be written, one that is being written and one that waits."""
    for month in ("2026-03-01", "2026-02-01", "2026-01-01", "2025-12-01"):
        focus_exports.request_export(
            month=at(month).date(), kind=FocusFormat.CSV, by=who, moment=at("2026-04-20 08:00")
        )
    write()
    _, failed, written, _ = FocusExport.objects.order_by("pk")
    failed.error = "No room for the file: 'No space left on device'. Make room on its disk, then ask again."
    failed.started_at = failed.ended_at = at("2026-04-20 08:05")
    failed.save()
    FocusExport.objects.filter(pk=written.pk).update(started_at=at("2026-04-20 08:06"), done=140, total=1000)
