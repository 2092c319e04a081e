"""Ann adds a passkey and signs in with it, in a real browser with a virtual authenticator (WebAuthn of DevTools)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from playwright.sync_api import Page, expect

from tests import builders
from tests.web.browser import SKIP_REASON, chromium, visit
from tests.web.house import a_house

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]
OPTIONS = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def with_authenticator(page: Page) -> None:
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": OPTIONS})


def types_password(page: Page, site: str) -> None:
    page.goto(f"{site}/accounts/login/?next=/t/vision-lab/team/")
    page.fill("[name=login]", "ann@vision.example")
    page.fill("[name=password]", builders.PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


@pytest.mark.parametrize("width", [1440, 390])
def test_ann_adds_a_passkey_and_signs_in_with_it(live_server: LiveServer, settings: Any, width: int) -> None:
    cache.clear()
    a_house(close=False)
    site = live_server.url.replace("127.0.0.1", "localhost")  # an address of numbers has no passkeys
    with chromium() as browser, visit(browser, width=width) as seen:
        page = seen.page
        with_authenticator(page)
        types_password(page, site)
        page.wait_for_url("**/team/")
        page.goto(f"{site}/accounts/2fa/webauthn/add/")
        page.fill("[name=password]", builders.PASSWORD)
        page.get_by_role("button", name="Confirm").click()
        page.fill("[name=name]", "Laptop")
        page.check("[name=passwordless]")
        page.get_by_role("button", name="Add", exact=True).click()
        page.wait_for_url("**/recovery-codes/**")
        page.goto(f"{site}/accounts/2fa/webauthn/")
        expect(page.get_by_text("Laptop")).to_be_visible()
        assert seen.overflow() <= 0

        page.context.clear_cookies()
        page.goto(f"{site}/accounts/login/?next=/t/vision-lab/team/")
        page.get_by_role("button", name="Sign in with a passkey").click()
        page.wait_for_url("**/t/vision-lab/team/")
        expect(page.get_by_role("heading", name="Team", exact=True)).to_be_visible()

        page.context.clear_cookies()
        types_password(page, site)
        page.wait_for_url("**/2fa/authenticate/")
        page.get_by_role("button", name="Use a passkey or security key").click()
        page.wait_for_url("**/team/")
        assert seen.complaints() == []
    assert Authenticator.objects.get(type="webauthn").user.email == "ann@vision.example"


def test_without_scripts_the_page_says_what_to_use_instead(live_server: LiveServer) -> None:
    cache.clear()
    a_house(close=False)
    with chromium() as browser, visit(browser, scripts=False) as seen:
        page = seen.page
        types_password(page, live_server.url)
        page.goto(f"{live_server.url}/accounts/2fa/webauthn/add/")
        page.fill("[name=password]", builders.PASSWORD)
        page.get_by_role("button", name="Confirm").click()
        expect(page.get_by_text("Passkeys need JavaScript")).to_be_visible()
        expect(page.get_by_role("button", name="Add", exact=True)).not_to_be_visible()


def test_the_picture_for_the_app_is_one(live_server: LiveServer) -> None:
    cache.clear()
    a_house(close=False)
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        types_password(page, live_server.url)
        page.goto(f"{live_server.url}/accounts/2fa/totp/activate/")
        page.fill("[name=password]", builders.PASSWORD)
        page.get_by_role("button", name="Confirm").click()
        picture = page.get_by_role("img", name="QR code for the authenticator app")
        assert picture.evaluate("(each) => each.complete && each.naturalWidth") > 100
        assert seen.complaints() == []
