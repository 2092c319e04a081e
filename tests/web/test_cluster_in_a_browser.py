"""Op watches a pass: the page asks for itself, and nothing that a browser complains of happens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.utils import timezone
from playwright.sync_api import Page

from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import Connection, Pull
from tests.builders import PASSWORD, a_bad_row, a_cluster, a_job, an_operator, at
from tests.schedulers import PASSWORDS, Scheduler, a_connection
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
    pytest.mark.django_db(transaction=True),
]


def a_cluster_with_a_story() -> None:
    cluster = a_connection().cluster
    job = a_job(gpus=4, started="2026-03-01 10:00", ended=None, seen_until="2026-03-01 11:59")
    slurm = Scheduler([job, a_bad_row(), a_job(started="2026-03-01 10:00", ended="2026-03-01 11:00")])
    slurm.nodes = [NodeSeen(name="n1", gpu_model="a100", gpus=8, state=NodeState.DRAINED)]
    slurm.pulled(cluster, "2026-03-01 12:00")
    slurm.forgotten = {job.source_key}
    slurm.pulled(cluster, "2026-03-01 12:05")
    Connection.objects.update(next_pull_at=at("2031-01-01"))


def meanwhile(pull: Pull, **fields: Any) -> None:
    """The worker writes: in a thread of its own, since this one belongs to the browser."""

    def write() -> None:
        try:
            Pull.objects.filter(pk=pull.pk).update(**fields)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as worker:
        worker.submit(write).result()


def test_a_pass_is_watched_without_a_click(live_server: LiveServer) -> None:
    a_cluster_with_a_story()
    an_operator()
    pull = Pull.objects.create(
        cluster_id=Connection.objects.get().cluster_id, source="x", started_at=timezone.now(),
        since=at("2026-03-01"), until=at("2026-03-02"), read=100,
    )  # fmt: skip
    with chromium() as browser, visit(browser) as seen:
        _sign_in(seen.page, f"{live_server.url}/operator/clusters/gpu1/")
        seen.page.wait_for_selector("text=100 rows imported so far")
        meanwhile(pull, read=5100)
        seen.page.wait_for_selector("text=5,100 rows imported so far")
        meanwhile(pull, outcome=Pull.Outcome.DONE, ended_at=timezone.now())
        seen.page.wait_for_selector("text=Syncing now", state="detached")
        assert seen.page.is_enabled("text=Sync now")
        seen.page.click("text=Sync now")
        seen.page.wait_for_selector("text=Sync requested. It starts shortly.")
        assert seen.complaints() == []


def test_the_pages_fit_every_window(live_server: LiveServer) -> None:
    a_cluster_with_a_story()
    an_operator()
    complaints = []
    with chromium() as browser:
        for width in WIDTHS:
            for theme in THEMES:
                with visit(browser, width=width, theme=theme) as seen:
                    _sign_in(seen.page, f"{live_server.url}/operator/clusters/gpu1/")
                    for part in ("", "connection/", "blocks/", "nodes/", "watermark/"):
                        seen.page.goto(f"{live_server.url}/operator/clusters/gpu1/{part}")
                        assert not any(secret in seen.page.content() for secret in PASSWORDS)
                        complaints += seen.complaints()
                        if seen.overflow() > 0:
                            complaints.append(f"{part} {width} {theme}: {seen.overflow()} px too wide")
    assert complaints == []


def test_op_declares_nodes_and_resets_a_watermark(live_server: LiveServer) -> None:
    a_cluster("farm", complete_through="2031-01-01")
    an_operator()
    address = f"{live_server.url}/operator/clusters/farm/"
    complaints = []
    with chromium() as browser, visit(browser, width=390) as seen:
        page = seen.page
        _sign_in(page, address)
        page.goto(f"{address}nodes/")
        for field, text in (("name", "n1"), ("gpu_model", "rtx4090"), ("gpus", "4"), ("since", "2026-06-01")):
            page.fill(f"[name=form-0-{field}]", text)
        page.click("text=Preview")
        page.wait_for_selector("text=n1: 4 × rtx4090, up, from 2026-06-01")
        complaints += [*seen.complaints(), *["too wide"] * (seen.overflow() > 0)]
        page.click("main button:has-text('Declare nodes')")
        page.wait_for_selector("text=Nodes of farm saved.")
        page.click("text=the watermark is reset")
        page.fill("[name=to]", "2026-06-01T12:00")
        page.fill("[name=why]", "The clock ran ahead.")
        page.click("text=Preview")
        page.wait_for_selector("text=goes back from 2031-01-01 00:00 UTC to 2026-06-01 12:00 UTC")
        complaints += [*seen.complaints(), *["too wide"] * (seen.overflow() > 0)]
        page.click("main button:has-text('Reset watermark')")
        page.wait_for_selector("text=1 Jun 2026, 12:00")
        complaints += seen.complaints()
    assert complaints == []


def _sign_in(page: Page, url: str) -> None:
    page.goto(url)
    page.fill("[name=login]", "op@cluster.example")
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url("**/operator/clusters/**")
