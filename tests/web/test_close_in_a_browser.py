"""Op watches a close: progress comes by itself, and nothing that a browser complains of happens."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from playwright.sync_api import Page

from billing.invoicing import close_runs, close_schedules
from billing.models import ApprovalLimit, CloseKind, CloseRun
from tests import builders
from tests.builders import PASSWORD
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit
from tests.web.house import House, a_house

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
    pytest.mark.django_db(transaction=True),
]

MARCH = "/operator/close/?month=2026-03"


def a_month_to_close() -> House:
    """Two labs that are ready, one beyond its bound, one without a plan."""
    house = a_house(close=False)
    ApprovalLimit.objects.create(metric="total", currency="USD", limit=10)
    builders.a_tenant("audio-lab", accounts=[(house.cluster, "audio")])
    builders.ingest(house.cluster, builders.a_job(account="audio"), as_of="2026-04-20")
    return house


def meanwhile(work: Callable[[], object]) -> None:
    """The worker writes: in a thread of its own, since this one belongs to the browser."""

    def write() -> None:
        try:
            work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as worker:
        worker.submit(write).result()


def perform() -> None:
    close_runs.perform_run(CloseRun.objects.unfinished().get().pk, clock=lambda: datetime.now(UTC))


def confirms_issuing(page: Page) -> None:
    page.click("button[value=issue]")
    page.wait_for_selector("text=Issue the invoices of March 2026")
    page.click("button[value=issue]")


def test_a_close_is_watched_and_what_is_parked_is_approved(live_server: LiveServer) -> None:
    a_month_to_close()
    with chromium() as browser, visit(browser) as seen:
        sign_in(seen.page, f"{live_server.url}{MARCH}")
        confirms_issuing(seen.page)
        seen.page.wait_for_selector("text=Issuing March 2026: waiting for a worker.")
        meanwhile(lambda: CloseRun.objects.update(started_at=datetime.now(UTC), done=1))
        seen.page.wait_for_selector("text=Issuing March 2026: 1 of 3 tenants.")
        meanwhile(lambda: CloseRun.objects.update(done=0))
        meanwhile(perform)
        seen.page.wait_for_selector("text=Invoices held for approval")
        seen.page.fill(".ct-items [name=why]", "Ann expects it")
        seen.page.click("button[value=approved]")
        seen.page.wait_for_selector("text=Issue the month to send it.")
        confirms_issuing(seen.page)
        seen.page.wait_for_selector("text=Issuing March 2026")
        meanwhile(perform)
        seen.page.wait_for_selector("text=INV-2026-0002")
        assert seen.complaints() == []


def test_without_scripts_a_reload_shows_how_far_it_is(live_server: LiveServer) -> None:
    a_month_to_close()
    with chromium() as browser, visit(browser, scripts=False) as seen:
        sign_in(seen.page, f"{live_server.url}{MARCH}")
        seen.page.click("button[value=preview]")
        seen.page.wait_for_selector("text=waiting for a worker")
        meanwhile(perform)
        seen.page.click("text=Reload to see the progress.")
        seen.page.wait_for_selector("text=Ready to issue")


def test_the_page_fits_every_window(live_server: LiveServer) -> None:
    house = a_month_to_close()
    complaints = []
    with chromium() as browser:
        for kind in CloseKind:
            meanwhile(lambda kind=kind: ask_for_close(kind, house))  # type: ignore[misc]
            for width in WIDTHS:
                for theme in THEMES:
                    with visit(browser, width=width, theme=theme) as seen:
                        sign_in(seen.page, f"{live_server.url}{MARCH}")
                        complaints += seen.complaints()
                        if seen.overflow() > 0:
                            complaints.append(f"{kind} {width} {theme}: {seen.overflow()} px too wide")
    assert complaints == []


def ask_for_close(kind: CloseKind, house: House) -> None:
    moment = builders.at("2026-04-19")
    close_runs.request_run(month="2026-03", kind=kind, by=house.op.email, moment=moment)
    perform()


def sign_in(page: Page, url: str) -> None:
    page.goto(url)
    page.fill("[name=login]", "op@cluster.example")
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url("**/operator/close/**")


def test_the_schedule_fits_every_window(live_server: LiveServer) -> None:
    house = a_month_to_close()
    for tenant, issue in ((None, 5), (house.speech, None)):
        close_schedules.set_schedule(tenant=tenant, preview_day=3, issue_day=issue, since=date(2026, 3, 1))
    complaints = []
    with chromium() as browser:
        for width in WIDTHS:
            for theme in THEMES:
                with visit(browser, width=width, theme=theme) as seen:
                    sign_in(seen.page, f"{live_server.url}/operator/close/schedule/")
                    complaints += seen.complaints()
                    if seen.overflow() > 0:
                        complaints.append(f"{width} {theme}: {seen.overflow()} px too wide")
                    seen.page.click("button:text-is('Preview')")
                    seen.page.wait_for_selector("text=Next steps with this change")
                    complaints += seen.complaints()
    assert complaints == []
