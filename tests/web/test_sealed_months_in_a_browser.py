"""The page of sealed months as Op sees it: both widths, light and dark, with every state of a month, for axe too."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from playwright.sync_api import expect

from billing.models import SealedMonth, SealKind
from billing.proof import checks
from billing.sealed_months import seal_runs
from clusters.models import Cluster
from portal.core.tenants.models import User
from tests import builders
from tests.builders import a_job, ingest
from tests.sealed_march import MARCH, NOW, enter_march, sealed
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, chromium, visit
from tests.web.test_every_page_in_a_browser import enter, problems, session

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
    pytest.mark.django_db(transaction=True),
]
PATH = "/operator/sealed-months/"


@pytest.fixture
def op(settings: Any, tmp_path: Path) -> User:
    """March may be sealed, April is not billed."""
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    settings.CLUSTERTAB_SEAL_AFTER_MONTHS = -60  # stories import in 2030
    enter_march()
    ingest(
        Cluster.objects.get(),
        a_job(job_id="8", submitted="2026-04-08 09:00", started="2026-04-08 10:00", ended="2026-04-08 12:00"),
        as_of="2026-04-20",
    )
    checks.prove(moment=NOW)
    return builders.an_operator()


def behind(write: Callable[[], object]) -> None:
    """What a worker or Op at the shell does while the page is open."""

    def alone() -> None:
        try:
            write()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as worker:  # this thread has playwright's event loop
        worker.submit(alone).result()


def work() -> None:
    seal_runs.perform_next(clock=lambda: NOW)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_in_every_state(
    live_server: LiveServer,
    op: User,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    theme: Theme,
) -> None:
    cookie = session(op)

    def unseals() -> None:
        SealedMonth.objects.update(damages=["2026-03/records.parquet is missing"])
        seal_runs.request_run(month=MARCH, kind=SealKind.UNSEAL, by=op.email, moment=NOW)
        (tmp_path / "sealed" / "2026-03" / "records.parquet").unlink()

    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        enter(seen.page, live_server.url, cookie)

        def looks(name: str, query: str = "") -> None:
            seen.page.goto(f"{live_server.url}{PATH}{query}")
            seen.page.screenshot(path=tmp_path / f"{name}-{width}-{theme}.png", full_page=True)
            assert seen.overflow() <= 0, name
            assert problems(seen.page) == [], name

        looks("ready")
        looks("asks", "?confirm=seal&month=2026-03")
        behind(sealed)
        looks("sealed")
        looks("unseals", "?confirm=unseal&month=2026-03")
        looks("drop-refused", "?confirm=drop&month=2026-03")
        monkeypatch.setattr("billing.sealed_months.drop.why_not", lambda _: None)
        looks("drops", "?confirm=drop&month=2026-03")
        behind(lambda: SealedMonth.objects.update(dropped_at=NOW))
        looks("dropped")
        looks("loads", "?confirm=load&month=2026-03")
        behind(lambda: SealedMonth.objects.update(dropped_at=None))
        behind(unseals)
        looks("waiting")
        seen.page.goto("about:blank")  # the page would load itself anew while the next is opened
        behind(work)
        looks("damaged")
        settings.CLUSTERTAB_SEALED_MONTHS = None
        looks("unset")
        assert seen.complaints() == []


def test_op_seals_a_month_in_three_clicks_and_sees_it_end(live_server: LiveServer, op: User) -> None:
    cookie = session(op)
    with chromium() as browser, visit(browser) as seen:
        enter(seen.page, live_server.url, cookie)
        seen.page.goto(f"{live_server.url}/operator/")
        seen.page.get_by_role("link", name="Sealed months").click()
        seen.page.get_by_role("button", name="Seal", exact=True).click()
        seen.page.get_by_role("button", name="Seal March 2026").click()
        expect(seen.page.get_by_text("Sealing March 2026: waiting for a worker.")).to_be_visible()
        assert len(seen.clicks()) == 3
        behind(work)
        expect(seen.page.get_by_text("Seal, 2026-03")).to_be_visible(timeout=10_000)
        expect(seen.page.get_by_role("button", name="Unseal")).to_be_visible()
        assert seen.complaints() == []
