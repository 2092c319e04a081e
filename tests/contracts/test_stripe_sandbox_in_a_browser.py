"""A person with a browser, and without scripts, pays on the pages of the stand-in for Stripe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.contracts.stripe_client import a_sandbox, ann, client, key
from tests.contracts.test_stripe_sandbox_checkout import session, setup, url
from tests.web.browser import SKIP_REASON, Theme, chromium, visit

pytestmark = pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def type_card(page: Page, number: str) -> None:
    form = page.locator("form").filter(has=page.get_by_label("Card number"))
    form.get_by_label("Card number").fill(number)
    form.get_by_label("Expiry").fill("12/34")
    form.get_by_label("CVC").fill("123")
    form.get_by_label("Name on card").fill("Ann")
    form.get_by_role("button").click()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_person_fails_and_passes_3d_secure_and_comes_back(browser: Browser, scripts: bool) -> None:
    with a_sandbox() as sandbox, visit(browser, scripts=scripts) as seen:
        api, page = client(sandbox), seen.page
        back = {
            "success_url": f"{sandbox.url}/?paid={{CHECKOUT_SESSION_ID}}",
            "cancel_url": f"{sandbox.url}/?left",
        }
        checkout = session(api, ann(api), **back)
        page.goto(url(checkout))
        assert page.get_by_text("Sandbox – no money moves").is_visible()
        type_card(page, "4000 0027 6000 3184")
        assert page.get_by_role("heading", name="Is it you?").is_visible()
        page.get_by_role("button", name="Fail").click()
        assert "We are unable to authenticate" in page.get_by_role("alert").inner_text()
        type_card(page, "4000 0027 6000 3184")
        page.get_by_role("button", name="Complete").click()
        assert page.url == f"{sandbox.url}/?paid={checkout.id}"
        assert api.v1.checkout.sessions.retrieve(checkout.id).payment_status == "paid"
        assert seen.console == []
        assert seen.failures == []


def test_a_person_goes_back_without_paying(browser: Browser) -> None:
    with a_sandbox() as sandbox, visit(browser) as seen:
        api = client(sandbox)
        seen.page.goto(url(session(api, ann(api), cancel_url=f"{sandbox.url}/?left")))
        seen.page.get_by_role("link", name="Back without paying").click()
        assert seen.page.url == f"{sandbox.url}/?left"
        assert sandbox.objects("payment_intent") == []


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_every_page_fits_its_window(browser: Browser, width: int, theme: Theme) -> None:
    with a_sandbox() as sandbox, visit(browser, width=width, theme=theme) as seen:
        api = client(sandbox)
        customer = ann(api)
        sandbox.dashboard.save_card(customer)
        params = {"customer": customer, "payment_method": "pm_card_authenticationRequired", "confirm": True}
        intent = api.v1.setup_intents.create(params, key())  # type: ignore[arg-type]  # of plain values
        pages = [
            url(session(api, customer)),
            url(setup(api, customer)),
            f"{sandbox.url}/authenticate/{intent.id}",
        ]
        for address in pages:
            seen.page.goto(address)
            for folded in seen.page.locator("summary").all():
                folded.click()
            assert seen.overflow() <= 0
            assert seen.complaints() == []
