"""The admin's own scripts run under the content security policy, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from portal.core.tenants.models import Ownership
from tests import builders
from tests.web.browser import SKIP_REASON, chromium, visit

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


def test_op_hands_an_account_over_by_searching_for_it(live_server: LiveServer) -> None:
    builders.an_operator()
    cluster = builders.a_cluster("philly")
    builders.a_tenant("vision-lab", plan=builders.a_plan())
    builders.ingest(cluster, builders.a_job(account="vision"))
    with chromium() as browser, visit(browser, width=1440) as seen:
        page = seen.page
        page.goto(f"{live_server.url}/admin/")
        page.fill("[name=login]", "op@cluster.example")
        page.fill("[name=password]", builders.PASSWORD)
        page.click("[type=submit]")

        page.goto(f"{live_server.url}/admin/tenants/ownership/add/")
        for field, typed in (("account", "vis"), ("tenant", "Vision")):
            page.locator(f".field-{field} .select2-selection").click()
            page.locator(".select2-search__field").fill(typed)
            page.locator(".select2-results__option--highlighted").click()
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.locator(".success")).to_contain_text("philly/vision → Vision Lab")
        assert seen.complaints() == []
    assert Ownership.objects.get().project.name == "vision"
