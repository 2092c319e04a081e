"""Every list of the administration, the form for a new row, and the page of one: axe finds nothing on any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib import admin
from django.test import RequestFactory
from django.urls import reverse

from tests.web.browser import SKIP_REASON, Theme, chromium, visit
from tests.web.house import House, a_house
from tests.web.test_every_page_in_a_browser import enter, problems, session

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


def paths(house: House) -> list[str]:
    """The start page; of each table its list, its form for a new row where one can be added, and one row."""
    assert (house.wallet.tenant, house.card.tenant, house.budget.tenant) == (house.vision,) * 3
    assert house.row.pk
    admin.autodiscover()
    request = RequestFactory().get("/admin/")
    request.user = house.op
    addresses = [reverse("admin:index")]
    for model, table in admin.site._registry.items():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        addresses.append(reverse(f"{name}_changelist"))
        if table.has_add_permission(request):
            addresses.append(reverse(f"{name}_add"))
        row = model._default_manager.order_by("-pk").first()
        if row is not None:
            addresses.append(reverse(f"{name}_change", args=[row.pk]))
    return addresses


@pytest.mark.parametrize(("width", "theme"), [(1440, "dark"), (390, "light")])
def test_axe_finds_nothing_on_any_page_of_the_administration(
    live_server: LiveServer, width: int, theme: Theme
) -> None:
    house = a_house()
    cookie, addresses = session(house.op), paths(house)
    by_page: dict[str, list[str]] = {}
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        enter(seen.page, live_server.url, cookie)
        for path in addresses:
            seen.page.goto(f"{live_server.url}{path}")
            # Django's sheets import others: axe would put their rules into the page, which the policy refuses.
            by_page[path] = problems(seen.page, preload=False)
        assert "\n".join(f"{path}: {one}" for path, them in by_page.items() for one in them) == ""
        assert len(by_page) > 100
        assert seen.complaints() == []
