"""Op sets an empty installation up in a real browser, drops a file onto the page, and acts on a tenant."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from playwright.sync_api import expect

from billing.rating import file_imports
from clusters.models import UsageFile
from portal.core.outbox import outbox
from tests import builders
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, Visit, chromium, visit

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]
FILE = Path(__file__).parents[2] / "docs" / "examples" / "march.sacct"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_op_comes_from_nothing_to_a_draft_without_a_command(
    live_server: LiveServer, width: int, theme: Theme
) -> None:
    builders.an_operator()
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        page = seen.page
        page.goto(f"{live_server.url}/operator/")
        page.fill("[name=login]", "op@cluster.example")
        page.fill("[name=password]", builders.PASSWORD)
        page.click("main button[type=submit]")
        page.wait_for_url("**/operator/")
        looks_well(seen)
        page.get_by_role("link", name="Begin").click()
        for label, text in (("Name", "Op Compute"), ("Street", "1 Main St"), ("Country", "US")):
            page.get_by_label(label, exact=True).fill(text)
        looks_well(seen)
        page.get_by_role("button", name="Save and continue").click()
        page.get_by_label("Name", exact=True).fill("lab")
        page.get_by_label("Its usage comes from").select_option("import")
        page.get_by_role("button", name="Save and continue").click()
        page.get_by_label("File", exact=True).set_input_files(FILE)
        page.get_by_label("Complete through (UTC)").fill("2026-04-01T00:00")
        page.get_by_role("button", name="Import", exact=True).click()
        expect(page.get_by_text("Its import starts shortly.")).to_be_visible()
        in_a_worker(imported)
        expect(page.get_by_text("Imported")).to_be_visible()  # the page looks by itself
        looks_well(seen)
        page.get_by_role("link", name="Continue setting up").click()
        looks_well(seen)
        page.get_by_role("button", name="Assign and continue").click()
        in_a_worker(rated)
        page.get_by_role("link", name="Reload").click()
        looks_well(seen)
        page.get_by_role("button", name="Publish and continue").click()
        in_a_worker(rated)
        looks_well(seen)
        page.get_by_role("link", name="Open draft").first.click()
        expect(page.get_by_text("Draft").first).to_be_visible()
        assert (len(seen.clicks()), len(seen.fields())) == (10, 8)
        assert seen.seconds(reading=True) <= 600  # ten minutes
        acts_on_a_tenant(seen, live_server.url)
        assert seen.complaints() == []


def acts_on_a_tenant(seen: Visit, url: str) -> None:
    page = seen.page
    page.goto(f"{url}/tenants/")
    page.get_by_role("link", name="Vision", exact=True).click()
    looks_well(seen)
    page.get_by_role("link", name="Change plan").click()
    page.get_by_label("From").fill("2026-05-01")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Nothing to do")).to_be_visible()
    looks_well(seen)


def looks_well(seen: Visit) -> None:
    """Nothing is cut off, nor wider than the window."""
    assert (seen.overflow() <= 0, seen.clipped()) == (True, []), seen.page.url


def imported() -> None:
    for file in UsageFile.objects.filter(ended_at=None):
        file_imports.import_file(file.pk, clock=lambda: datetime.now(UTC).replace(microsecond=0))


def rated() -> None:
    outbox.drain()


def in_a_worker(work: Callable[[], None]) -> None:
    """What a worker does meanwhile: this thread has playwright's event loop."""

    def done() -> None:
        try:
            work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as worker:
        worker.submit(done).result()
