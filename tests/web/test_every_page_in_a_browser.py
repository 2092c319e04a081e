"""Every page in a real browser: axe finds nothing on it, and nothing complains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from playwright.sync_api import Page

from portal.core.tenants.models import User
from tests.brands import NAME, a_brand, a_picture
from tests.web.browser import SKIP_REASON, THEMES, Theme, chromium, visit
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
RULES: dict[str, Any] = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
    "resultTypes": ["violations"],  # of all else every element would be gathered: a quarter of the time
}


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
        (session(house.op), [route for route in pages if not route.startswith("t/")]),
    ]
    paths = {route: address(route, house) for _, routes in walks for route in routes}
    by_page: dict[str, list[str]] = {}
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        for cookie, routes in walks:
            enter(seen.page, live_server.url, cookie)
            for route in routes:
                seen.page.goto(f"{live_server.url}{paths[route]}")
                violations = problems(seen.page)
                seen.unfold()
                wide = ["is wider than the window"] if seen.overflow() > 0 else []
                by_page[route] = [*violations, *wide]
        assert "\n".join(f"{route}: {one}" for route, all_of_it in by_page.items() for one in all_of_it) == ""
        assert len(by_page) > 60
        assert seen.complaints() == []


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_in_the_colors_of_a_brand(live_server: LiveServer, theme: Theme) -> None:
    """Nor where an operator looks at another one before it is saved."""
    house = a_house()
    a_brand(color="#16284a", logo=a_picture(900, 200))  # nearly as dark as the dark theme
    paths = ["/t/vision-lab/", "/t/vision-lab/invoices/", "/t/vision-lab/budgets/", "/t/vision-lab/team/"]
    anns, ops = session(house.ann), session(house.op)
    by_page: dict[str, list[str]] = {}
    with chromium() as browser, visit(browser, width=1440, theme=theme) as seen:
        seen.page.goto(f"{live_server.url}/accounts/login/")
        assert seen.page.title().endswith(f"· {NAME}")
        by_page["sign-in"] = problems(seen.page)
        enter(seen.page, live_server.url, anns)
        for path in paths:
            seen.page.goto(f"{live_server.url}{path}")
            by_page[path] = problems(seen.page)
        logo = seen.page.locator(".ct-side .ct-logo")
        assert logo.evaluate("logo => logo.complete && logo.naturalWidth > 0")
        enter(seen.page, live_server.url, ops)
        seen.page.goto(f"{live_server.url}/operator/brand/")
        seen.page.fill("#color", "#b3261e")
        seen.page.get_by_role("button", name="Preview").click()
        button = seen.page.get_by_role("button", name="Save")
        color = button.evaluate("button => getComputedStyle(button).backgroundColor")
        assert color == {"light": "rgb(179, 38, 30)", "dark": "rgb(187, 62, 55)"}[theme]
        by_page["preview"] = problems(seen.page)
        assert {path: one for path, one in by_page.items() if one} == {}
        assert seen.complaints() == []


def session(person: User) -> str:
    """The cookie of somebody who signed in."""
    return signed_in(person).cookies[settings.SESSION_COOKIE_NAME].value


def enter(page: Page, site: str, cookie: str) -> None:
    page.context.clear_cookies()
    if not cookie:
        return
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": site}])


def problems(page: Page, **options: Any) -> list[str]:
    """What axe found, each with an element of the page: `color-contrast: .ct-note`."""
    results = Axe().run(page, options=RULES | options)
    return [
        f"{rule['id']}: {node['html'][:120]}"
        for rule in results.response["violations"]
        for node in rule["nodes"][:2]
    ]
