"""The page of collecting, and a notice, as people see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.models import Notice
from tests.builders import PASSWORD, at
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit
from tests.web.clock import stand_at
from tests.web.house import a_house

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]

NOW = "2026-04-28 09:00"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_op_pauses_an_invoice_without_scripts_and_the_page_fits(
    live_server: LiveServer, tmp_path: Path, width: int, theme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_at(monkeypatch, NOW, of="portal.web.receivables")
    house = a_house()
    house.speech.memberships.all().delete()
    dunning_run.run_dunning(moment=at(NOW))
    delivery.send_notices(moment=at(NOW))
    notice = Notice.objects.get(tenant=house.vision, state="drafted").html
    with chromium() as browser, visit(browser, width=width, theme=theme, scripts=width > 700) as seen:
        page = seen.page
        page.goto(f"{live_server.url}/accounts/login/?next=/operator/receivables/")
        page.fill("[name=login]", house.op.email)
        page.fill("[name=password]", PASSWORD)
        page.click("main button[type=submit]")
        expect(page.get_by_role("heading", name="Collections")).to_be_visible()
        page.screenshot(path=tmp_path / f"collecting-{width}-{theme}.png", full_page=True)
        assert seen.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        row = page.get_by_role("row", name="Vision Lab")
        row.get_by_text("Pause", exact=True).first.click()
        row.get_by_label("Reason").fill("They pay next week")
        page.screenshot(path=tmp_path / f"pause-{width}-{theme}.png", full_page=True)
        assert seen.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        row.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("dunning paused until you resume it.")).to_be_visible()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        page.goto("about:blank")
        page.set_content(notice)
        page.screenshot(path=tmp_path / f"notice-{width}-{theme}.png", full_page=True)
