"""The reference of the API in a browser: nothing is refused, cut off or wider than the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, chromium, visit
from tests.web.house import a_house
from tests.web.test_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_ann_reads_the_reference(live_server: LiveServer, width: int, theme: Theme) -> None:
    a_house(close=False)
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        for path in ("", "invoices/"):
            page.goto(f"{live_server.url}/reference/api/{path}")
            assert seen.overflow() <= 0
        page.get_by_text("Statuses").first.click()
        assert page.get_by_text("No valid key came with the request.").first.is_visible()
        assert seen.complaints() == []
