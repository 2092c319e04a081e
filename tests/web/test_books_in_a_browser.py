"""The page of reconciliation, and a payout's, as Op sees them: both widths, light and dark, full and empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from billing.models import GatewayPayout
from billing.reconciliation import reconciliation_run
from tests import builders
from tests.builders import PASSWORD
from tests.collecting import Scenario, a_scenario, more_labs
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, Visit, chromium, visit

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """Six payments that were paid out; of some the books differ, one difference was noted, one is resolved."""
    with a_scenario() as scenario:
        builders.an_operator()
        more_labs(scenario, [f"lab-{number}" for number in range(1, 6)])
        scenario.save_card()
        scenario.collect()
        scenario.wait(days=3)
        yield scenario


def books_that_differ(scenario: Scenario) -> str:
    dashboard, intents = scenario.stripe.dashboard, scenario.stripe.objects("payment_intent")
    dashboard.alter(intents[0]["id"], amount=399)
    dashboard.alter(intents[1]["id"], status="processing")
    dashboard.move(-250)
    dashboard.dispute(intents[2]["id"])
    scenario.wait(hours=3)
    reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="each night")
    dashboard.alter(intents[1]["id"], status="succeeded")
    scenario.wait(hours=3)
    reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op@cluster.example")
    return GatewayPayout.objects.order_by("created_at")[0].pk


def sign_in(seen: Visit, site: str) -> None:
    seen.page.goto(f"{site}/operator/reconciliation/")
    seen.page.fill("[name=login]", "op@cluster.example")
    seen.page.fill("[name=password]", PASSWORD)
    seen.page.click("main button[type=submit]")
    seen.page.wait_for_url("**/operator/reconciliation/")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_of_reconciliation_fit(
    live_server: LiveServer, scenario: Scenario, tmp_path: Path, width: int, theme: Theme
) -> None:
    payout = books_that_differ(scenario)
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        sign_in(seen, live_server.url)
        for name, path in {"open": "", "resolved": "?state=resolved", "payout": f"payouts/{payout}/"}.items():
            seen.page.goto(f"{live_server.url}/operator/reconciliation/{path}")
            seen.page.screenshot(path=tmp_path / f"{name}-{width}-{theme}.png", full_page=True)
            assert seen.overflow() <= 0, name
        assert seen.complaints() == []


def test_op_notes_what_is_known_of_a_difference(live_server: LiveServer, scenario: Scenario) -> None:
    books_that_differ(scenario)
    with chromium() as browser, visit(browser) as seen:
        sign_in(seen, live_server.url)
        row = seen.page.locator("li").filter(has_text="Another amount")
        row.get_by_role("textbox").fill("Asked Stripe on the phone.")
        row.get_by_role("button", name="Save note").click()
        expect(seen.page.get_by_role("status").filter(has_text="Note on")).to_be_visible()
        expect(row.get_by_text("Asked Stripe on the phone.")).to_be_visible()
        assert seen.complaints() == []
