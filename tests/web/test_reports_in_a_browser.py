"""Reports in a real browser, at both widths and in both themes: nothing complains, nothing is cut off."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from billing.invoicing import manual_lines
from billing.models import EfficiencySnapshot
from billing.reports import efficiency_snapshots
from billing.rules.money import Money
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from portal.core.outbox import outbox
from portal.core.tenants.models import User
from tests import builders
from tests.scenarios.reports import worked
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, chromium, visit
from tests.web.house import a_house
from tests.web.test_close_in_a_browser import meanwhile

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]

MARCH = "?from=2026-03-01&through=2026-03-31"


def sign_in(page: Page, site: str, email: str, path: str) -> None:
    page.goto(f"{site}{path}")
    page.fill("[name=login]", email)
    page.fill("[name=password]", builders.PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(f"**{path}")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_op_and_ann_choose_what_a_report_tells_by(live_server: LiveServer, width: int, theme: Theme) -> None:
    house = a_house(close=False)
    worked("17", "2026-03-02 10:00", "3600", covered=7200)
    long = builders.a_job(job_id="a-job-with-a-name-without-any-end-" + "x" * 60, account="whose")
    builders.ingest(house.cluster, long, as_of="2026-04-20")
    nodes = [NodeSeen(name="n1", gpu_model="a100", gpus=8, state=NodeState.UP)]
    capacity.observe(house.cluster, nodes, builders.at("2026-03-01"))
    with chromium() as browser:
        for email, path in (
            ("op@cluster.example", "/operator/reports/"),
            ("ann@vision.example", "/t/vision-lab/efficiency/"),
        ):
            with visit(browser, width=width, theme=theme) as seen:
                sign_in(seen.page, live_server.url, email, path + MARCH)
                seen.page.select_option("#by", "pod")
                seen.page.get_by_role("button", name="Show").click()
                expect(
                    seen.page.get_by_role("heading", name="by job, 1 Mar 2026 – 31 Mar 2026")
                ).to_be_visible()
                expect(seen.page.get_by_text("17", exact=True)).to_be_visible()
                assert seen.overflow() <= 0
                assert seen.complaints() == []


def test_the_longer_words_of_german_cut_nothing_off(live_server: LiveServer) -> None:
    house = a_house(close=False)
    User.objects.filter(pk=house.ann.pk).update(language="de")
    worked("17", "2026-03-02 10:00", "3600", covered=7200)
    support = Money.from_minor(2500, "USD")  # beside the use, which the chart then has at first prices
    manual_lines.add_manual_line(
        tenant=house.vision, description="Support", net=support, reason="agreed", by="op", on=date(2026, 3, 3)
    )
    beyond = "[...document.querySelectorAll('.ct-scroll')].map((one) => one.scrollWidth - one.clientWidth)"
    with chromium() as browser:
        for width, path in ((1440, f"efficiency/{MARCH}"), (390, "?period=2026-03-01")):
            with visit(browser, width=width, theme="light") as seen:
                sign_in(seen.page, live_server.url, house.ann.email, f"/t/vision-lab/{path}")
                assert max(seen.page.evaluate(beyond), default=0) <= 0
                assert seen.overflow() <= 0


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_that_waits_for_a_worker_shows_its_figures_by_itself(
    live_server: LiveServer, width: int, theme: Theme, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    a_house(close=False)
    worked("17", "2026-03-02 10:00", "0", covered=7200)
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        path = "/t/vision-lab/efficiency/"
        sign_in(seen.page, live_server.url, "ann@vision.example", path + MARCH)
        expect(seen.page.get_by_role("heading", name="Being computed")).to_be_visible()
        seen.page.screenshot(path=tmp_path / f"waits-{width}-{theme}.png", full_page=True)
        meanwhile(outbox.drain)
        expect(seen.page.get_by_role("heading", name="Held and not used")).to_be_visible()
        expect(seen.page.get_by_text("As of")).to_be_visible()
        seen.page.screenshot(path=tmp_path / f"as-of-{width}-{theme}.png", full_page=True)
        assert seen.overflow() <= 0
        meanwhile(lambda: EfficiencySnapshot.objects.update(as_of=builders.at("2026-04-01"), seconds=0))
        seen.page.get_by_role("link", name="1 job").first.click()
        expect(seen.page.get_by_text("Newer figures are being computed.")).to_be_visible()
        meanwhile(outbox.drain)
        expect(seen.page.get_by_text("Newer figures are being computed.")).not_to_be_visible()
        expect(seen.page.get_by_role("link", name="17", exact=True)).to_be_visible()
        assert seen.complaints() == []
