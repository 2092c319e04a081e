"""Ann makes a webhook, tries it and looks at what failed, in a real browser: nothing complains, nothing is cut off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from playwright.sync_api import expect

from tests.fakes.receiver import Reply
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, chromium, visit
from tests.web.house import a_house
from tests.web.test_in_a_browser import sign_in
from tests.webhooks import a_clock, an_endpoint, deliver

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_ann_makes_a_webhook_and_sees_why_a_delivery_failed(
    live_server: LiveServer, width: int, theme: Theme
) -> None:
    a_house()
    with an_endpoint() as receiver, chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        receiver.reply = lambda arrival: Reply(
            500, pieces=(b'{"error": "the database of the endpoint is away"}',)
        )
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/webhooks/")
        expect(page.get_by_role("heading", name="No webhooks yet")).to_be_visible()
        assert seen.overflow() <= 0
        page.get_by_label("Name").fill("finance-export")
        page.get_by_label("Address").fill(receiver.url("/clustertab/a-long-path-of-an-endpoint"))
        page.get_by_label("invoice.paid").check()
        page.get_by_role("button", name="Create webhook").click()
        secret = page.locator(".ct-copy").inner_text()
        receiver.secrets["/clustertab/a-long-path-of-an-endpoint"] = [secret]
        assert seen.overflow() <= 0
        page.get_by_role("button", name="Send test").click()
        with ThreadPoolExecutor(1) as worker:  # this thread has playwright's event loop
            assert worker.submit(sends).result() == 1
        page.reload()
        page.get_by_text("Body", exact=True).click()
        expect(page.get_by_text("the database of the endpoint is away")).to_be_visible()
        assert seen.overflow() <= 0
        assert seen.clipped() == []
        page.goto(f"{live_server.url}/t/vision-lab/webhooks/")
        assert seen.overflow() <= 0
        assert seen.complaints() == []


def sends() -> int:
    """What a worker does."""
    clock = a_clock()
    clock.passes(seconds=5)
    try:
        return deliver(clock)
    finally:
        connection.close()
