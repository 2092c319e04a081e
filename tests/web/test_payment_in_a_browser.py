"""Ann pays by card in a real browser: saves one, is refused, fails and passes 3-D Secure, and sees what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from billing.models import Notice
from portal.core.tenants.models import Role
from tests import builders
from tests.collecting import Scenario, a_scenario
from tests.scenarios.test_dunning_endures import copies
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Visit, chromium, visit
from tests.web.house import signed_in
from tests.web.test_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


@pytest.fixture
def scenario(settings: Any) -> Iterator[Scenario]:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        builders.a_person("ann@vision.example", scenario.lab, Role.OWNER)
        policy = settings.CONTENT_SECURITY_POLICY
        settings.CONTENT_SECURITY_POLICY = policy.replace(
            "form-action 'self'", f"form-action 'self' {scenario.stripe.url}"
        )
        yield scenario


def fill_in(page: Page, number: str) -> None:
    """The hosted page, as somebody does who has a card before them."""
    card = page.locator("form.card").filter(has=page.locator("[name=number]"))
    card.locator("[name=number]").fill(number)
    card.locator("[name=expiry]").fill("12 / 34")
    card.locator("[name=cvc]").fill("123")
    card.locator("[name=name]").fill("Ann")
    if card.locator("[name=email]").count():
        card.locator("[name=email]").fill("ann@vision.example")
    card.locator("button").click()


def test_ann_saves_a_card_and_it_is_charged_from_then_on(live_server: LiveServer, scenario: Scenario) -> None:
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.get_by_role("link", name="Payment").click()
        expect(page.get_by_role("heading", name="No card is saved")).to_be_visible()
        page.get_by_role("button", name="Add a card").click()
        fill_in(page, "4242 4242 4242 4242")
        page.wait_for_url("**/t/vision-lab/payment/")
        expect(page.get_by_text("Visa ending in 4242 is saved.")).to_be_visible()
        assert seen.complaints() == []
    scenario.collect()
    assert (scenario.charged, scenario.settlement) == ([400], "paid")
    ann = scenario.lab.memberships.get().user
    assert (
        "Visa ending in 4242" in signed_in(ann).get("/t/vision-lab/invoices/INV-2026-0001/").content.decode()
    )
    scenario.books_agree()


@pytest.mark.sample
def test_case_076_ann_fails_and_then_passes_3d_secure_and_the_invoice_is_paid_once(
    live_server: LiveServer, scenario: Scenario
) -> None:
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/invoices/INV-2026-0001/")
        page.get_by_role("button", name="Pay by card").click()
        fill_in(page, "4000 0027 6000 3184")
        page.get_by_role("button", name="Fail").click()
        fill_in(page, "4000 0027 6000 3184")
        page.get_by_role("button", name="Complete").click()
        page.wait_for_url("**/t/vision-lab/invoices/INV-2026-0001/")
        expect(page.get_by_role("heading", name="INV-2026-0001")).to_contain_text("Paid")
    scenario.collect()
    assert (scenario.charged, scenario.states, scenario.paid) == ([400], ["succeeded"], "4.00")
    scenario.books_agree()


def test_ann_pays_with_her_saved_card_and_is_led_to_her_bank_and_back(
    live_server: LiveServer, scenario: Scenario
) -> None:
    scenario.save_card("4000002760003184")
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/invoices/INV-2026-0001/")
        page.get_by_role("button", name="Pay $4.00 with Visa ending in 3184").click()
        page.get_by_role("button", name="Complete").click()
        page.wait_for_url("**/t/vision-lab/invoices/INV-2026-0001/")
        expect(page.get_by_text("$4.00 paid with Visa ending in 3184. Thank you.")).to_be_visible()
        expect(page.get_by_role("heading", name="INV-2026-0001")).to_contain_text("Paid")
    assert (scenario.charged, scenario.states, scenario.paid) == ([400], ["succeeded"], "4.00")
    scenario.books_agree()


def test_collecting_case_23_a_forged_way_back_shows_nothing_of_anybody(
    live_server: LiveServer, scenario: Scenario
) -> None:
    other = builders.a_tenant("speech-lab")
    builders.a_person("eve@speech.example", other, Role.OWNER)
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/invoices/INV-2026-0001/")
        page.get_by_role("button", name="Pay by card").click()
        session = scenario.stripe.objects("checkout.session")[0]["id"]
        back = page.goto(f"{live_server.url}/t/vision-lab/payment/back/?session={session}")
        assert back is not None
        expect(page.get_by_role("heading", name="INV-2026-0001")).to_contain_text("Past due")
    eve = other.memberships.get().user
    assert signed_in(eve).get(f"/t/speech-lab/payment/back/?session={session}").status_code == 404
    assert scenario.paid == "0.00"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_of_payment_fit(
    live_server: LiveServer, scenario: Scenario, tmp_path: Path, width: int, theme: Any
) -> None:
    scenario.save_card("4000000000000341")
    scenario.collect()
    scenario.save_card("5555555555554444")
    copies(2)
    Notice.objects.create(
        tenant=scenario.lab, kind="reminder", key="refused", state="sent", subject="A reminder", text="Please pay.",
        refused={"bills@vision.example": "550 no such user here"}, created_at=scenario.now, not_before=scenario.now,
        sent_at=scenario.now,
    )  # fmt: skip
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        pages = {"payment": "payment/", "list": "invoices/", "invoice": "invoices/INV-2026-0001/"}
        for name, address in pages.items():
            page.goto(f"{live_server.url}/t/vision-lab/{address}")
            looked_at(seen, tmp_path / f"{name}-{width}-{theme}.png")
        expect(page.get_by_text("Your card was declined.")).to_be_visible()
        assert seen.complaints() == []


def looked_at(seen: Visit, picture: Path) -> None:
    seen.page.screenshot(path=picture, full_page=True)
    assert seen.overflow() <= 0
    assert seen.clipped() == []
