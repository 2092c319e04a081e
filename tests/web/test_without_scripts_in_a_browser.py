"""Everything that a tenant reads, and paying, in a browser without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import cache
from playwright.sync_api import Page, expect

from billing.models import Invoice
from billing.payments import payment_links
from portal.core.tenants.models import Role
from tests import builders
from tests.collecting import Scenario, a_scenario, more_labs
from tests.web.browser import SKIP_REASON, chromium, visit
from tests.web.test_in_a_browser import sign_in
from tests.web.test_payment_in_a_browser import fill_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]
HERE = "/t/vision-lab/"
READ = {
    "": "Overview",
    "?period=2026-03-01": "$4.00",
    "costs/?from=2026-03-01&through=2026-03-31": "$4.00",
    "costs/change/?from=2026-03-01&through=2026-03-31": "$4.00",
    "efficiency/?from=2026-03-01&through=2026-03-31": "2.00",
    "idle-jobs/": "Idle jobs",
    "live/": "Refresh",
    "jobs/?period=2026-03-01": "$4.00",
    "invoices/": "INV-2026-0001",
    "invoices/INV-2026-0001/": "$4.00",
    "invoices/INV-2026-0001/lines/1/": "7,200 GPU-seconds",
    "plan/": "$2.00",
    "quote/": "Quote",
    "wallets/": "Wallets",
    "payment/": "Add a card",
    "budgets/": "Preview",
    "billing/": "Preview changes",
    "team/": "Invite",
    "notifications/": "Save",
    "api-keys/": "key",
    "webhooks/": "Webhook",
    "history/": "ann@vision.example",
    "account/": "INV-2026-0001",
    "account/?year=2026": "$4.00",
}
"""Each page with something that is read on it."""
UNREADABLE = """() => [...document.querySelectorAll('figure, [hx-get], button')].filter((one) => {
  if (!one.checkVisibility()) return false;
  if (one.matches('figure')) return !one.closest('section, .card').querySelector('table');
  if (one.matches('button')) return !one.form;
  return !one.matches('a[href], form, [hx-trigger^=every]') && !one.closest('form')?.querySelector('[type=submit]');
}).map((one) => one.outerHTML.slice(0, 200))"""
"""Charts without their numbers in a table, and what does nothing without a script; but what only looks again does."""


@pytest.fixture
def scenario(settings: Any) -> Iterator[Scenario]:
    cache.clear()
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        builders.a_person("ann@vision.example", scenario.lab, Role.OWNER)
        policy = settings.CONTENT_SECURITY_POLICY
        settings.CONTENT_SECURITY_POLICY = policy.replace(
            "form-action 'self'", f"form-action 'self' {scenario.stripe.url}"
        )
        settings.PORTAL_URL = "http://portal.example"
        yield scenario
        assert scenario.stripe.violations == []


def test_all_that_a_tenant_reads_is_there_without_scripts(
    live_server: LiveServer, scenario: Scenario
) -> None:
    with chromium() as browser, visit(browser, scripts=False) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        lacking: dict[str, list[str]] = {}
        for path, text in READ.items():
            answer = page.goto(f"{live_server.url}{HERE}{path}")
            assert answer is not None
            assert answer.status == 200, path
            opened(page)
            if text not in page.locator("main").inner_text():
                lacking[path] = [text]
            lacking[path] = [*lacking.get(path, []), *page.evaluate(UNREADABLE)]
        assert {path: each for path, each in lacking.items() if each} == {}
        from_the_jobs_to_a_formula(page, live_server.url)
        a_range_of_costs_by_its_form(page, live_server.url)
        an_address_is_saved(page, live_server.url)


def opened(page: Page) -> None:
    """What is folded is unfolded, as by hand."""
    folded = page.locator("main details:not([open]) > summary")
    for _ in range(folded.count()):
        folded.first.click()


def from_the_jobs_to_a_formula(page: Page, site: str) -> None:
    page.goto(f"{site}{HERE}jobs/?period=2026-03-01")
    page.get_by_role("main").get_by_role("link", name=re.compile(r"^\d+$")).click()  # the only job
    expect(page.get_by_text("7,200 GPU-seconds ÷ 3,600 × $2.00 = $4.00")).to_be_visible()
    opened(page)
    assert page.evaluate(UNREADABLE) == []


def a_range_of_costs_by_its_form(page: Page, site: str) -> None:
    page.goto(f"{site}{HERE}costs/")
    page.get_by_label("From", exact=True).fill("2026-03-01")
    page.get_by_label("Through", exact=True).fill("2026-03-31")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("main")).to_contain_text("$4.00")


def an_address_is_saved(page: Page, site: str) -> None:
    page.goto(f"{site}{HERE}billing/")
    page.get_by_label("Purchase order").fill("PO-17")
    page.get_by_role("button", name="Preview changes").click()
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_label("Purchase order")).to_have_value("PO-17")


def test_ann_and_a_finance_department_pay_without_scripts(
    live_server: LiveServer, scenario: Scenario
) -> None:
    """On our pages and the stand-in's; the real page of Stripe has scripts of its own."""
    other = more_labs(scenario, ["speech-lab"])[0]
    invoice = Invoice.objects.get(tenant=other)
    link = payment_links.make_link(invoice=invoice, days=7, by="eve@speech.example", moment=datetime.now(UTC))
    path = payment_links.path_of(link)
    with chromium() as browser:
        with visit(browser, scripts=False) as seen:
            page = seen.page
            sign_in(page, live_server.url)
            page.get_by_role("link", name="Invoices", exact=True).click()
            page.get_by_role("link", name="INV-2026-0001").click()
            page.get_by_role("button", name="Pay by card").click()
            fill_in(page, "4242 4242 4242 4242")
            page.wait_for_url(f"**{HERE}invoices/INV-2026-0001/")
            expect(page.get_by_role("heading", name="INV-2026-0001")).to_contain_text("Paid")
        with visit(browser, scripts=False) as seen:
            page = seen.page
            page.goto(f"{live_server.url}{path}")
            page.get_by_role("button", name=re.compile(r"Pay \$4.00 by card")).click()
            fill_in(page, "4242 4242 4242 4242")
            page.wait_for_url(f"**{path}")
            expect(page.get_by_text("$4.00 paid. Thank you.")).to_be_visible()
            expect(page.get_by_role("heading", level=1)).to_contain_text("Paid")
    assert sorted(scenario.charged) == [400, 400]
