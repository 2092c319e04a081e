"""Every page in a real browser: axe finds nothing on it, and nothing complains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from playwright.sync_api import Page

from portal.core.tenants.models import User
from tests.web.browser import SKIP_REASON, Theme, chromium, visit
from tests.web.house import a_house, signed_in
from tests.web.sign_up_stories import mail_reaches_people, open_the_house
from tests.web.test_access import ACTS, NOT_YET, OURS, address

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]

ACCOUNT = ["accounts/2fa/", "accounts/password/change/", "accounts/sessions/", "accounts/logout/"]
PREVIEW = "t/<slug:slug>/plan/change/?plan=starter"
ADMIN = ["admin/", "admin/billing/invoice/", "admin/billing/plan/"]
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}


@pytest.mark.parametrize(("width", "theme"), [(1440, "dark"), (390, "light")])
def test_axe_finds_nothing_on_any_page(
    live_server: LiveServer, settings: Any, width: int, theme: Theme
) -> None:
    mail_reaches_people(settings)
    house = a_house()
    newcomer = open_the_house(house)
    pages = [route for route in OURS if route not in ACTS and route not in NOT_YET and route != "sign-up/"]
    pages = [route for route in pages if not route.endswith(("csv", "documents", "evidence", "xml"))]
    walks = [
        ("", ["accounts/login/", "accounts/signup/"]),
        (session(newcomer), ["sign-up/"]),
        (session(house.ann), [*(route for route in pages if route.startswith("t/")), *ACCOUNT, PREVIEW]),
        (session(house.op), [*(route for route in pages if not route.startswith("t/")), *ADMIN]),
    ]
    paths = {route: address(route, house) for _, routes in walks for route in routes}
    found: dict[str, list[str]] = {}
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        for cookie, routes in walks:
            enter(seen.page, live_server.url, cookie)
            for route in routes:
                seen.page.goto(f"{live_server.url}{paths[route]}")
                wide = ["is wider than the window"] if seen.overflow() > 0 else []
                found[route] = [*problems(seen.page), *wide]
        assert "\n".join(f"{route}: {one}" for route, all_of_it in found.items() for one in all_of_it) == ""
        assert len(found) > 60
        assert seen.complaints() == []


def session(person: User) -> str:
    """The cookie of somebody who signed in."""
    return signed_in(person).cookies[settings.SESSION_COOKIE_NAME].value


def enter(page: Page, site: str, cookie: str) -> None:
    page.context.clear_cookies()
    if not cookie:
        return
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": site}])


def problems(page: Page) -> list[str]:
    """What axe found, each with an element of the page: `color-contrast: .ct-note`."""
    results = Axe().run(page, options=RULES)
    return [
        f"{rule['id']}: {node['html'][:120]}"
        for rule in results.response["violations"]
        for node in rule["nodes"][:2]
    ]
