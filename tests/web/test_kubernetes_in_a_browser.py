"""Blocks of a Kubernetes cluster in a real browser: long names of objects fit every window."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.builders import an_operator
from tests.fakes import kubernetes, kubernetes_port
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Visit, chromium, visit
from tests.web.test_reports_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


def test_the_pages_fit_every_window(live_server: LiveServer) -> None:
    op = an_operator()
    shots = os.environ.get("SHOTS", "")
    with kubernetes.StandIn() as kube:
        kubernetes_port.a_world(kube)
        kubernetes_port.connected(kube, dedicated_cluster_queues=["research"])
        kube.forbidden = {"patch localqueues"}
        look_at(live_server.url, op.email, shots)
        assert kube.writes() == []


def look_at(url: str, who: str, shots: str) -> None:
    path = "/operator/clusters/kube/"
    with chromium() as browser:
        for width in WIDTHS:
            for theme in THEMES:
                with visit(browser, width=width, theme=theme) as at:
                    sign_in(at.page, url, who, f"{path}blocks/")
                    at.page.fill("#account", "batch")
                    at.page.click("button[value=preview]")
                    at.page.wait_for_selector("#preview-title")
                    check(at, "preview", width, theme, shots)
                    at.page.goto(url + path)
                    at.page.click("button[value=check]")
                    at.page.wait_for_selector("#findings-title")
                    check(at, "cluster", width, theme, shots)
                    assert at.complaints() == []


def check(at: Visit, name: str, width: int, theme: str, shots: str) -> None:
    if shots:
        at.page.screenshot(path=Path(shots) / f"{name}-{width}-{theme}.png", full_page=True)
    assert at.overflow() <= 0, (name, width)
    assert at.clipped() == [], (name, width)
