"""Failures and their credits in a real browser: long names of GPUs and pods fit every window."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from billing.models import ServiceCredit
from billing.service_credits import review
from clusters.models import GpuError, GpuErrorReading
from portal.core.tenants.models import Role
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, an_operator, at, ingest
from tests.scenarios.test_service_credits import a_rule, an_error, ran
from tests.stories import closed
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Visit, chromium, visit
from tests.web.test_reports_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]

UUID = "GPU-5fd4f7ce-1b2a-4c3d-8e9f-0a1b2c3d4e5f"
POD = "research-team-with-a-long-name/train-llama-70b-worker-0/pytorch"


def test_the_pages_fit_every_window(live_server: LiveServer) -> None:
    op, number, job = _a_credited_job()
    shots = os.environ.get("SHOTS", "")
    page = "/operator/service-credits/"
    with chromium() as browser:
        for width in WIDTHS:
            for theme in THEMES:
                with visit(browser, width=width, theme=theme) as seen:
                    sign_in(seen.page, live_server.url, op, page)
                    check(seen, "credits", width, theme, shots)
                    seen.page.fill("input[name=name]", "failed-hardware")
                    seen.page.click("button[value=preview]")
                    seen.page.wait_for_selector("#preview-title")
                    check(seen, "preview", width, theme, shots)
                    seen.page.goto(f"{live_server.url}/t/vision/invoices/{number}/")
                    check(seen, "invoice", width, theme, shots)
                    seen.page.goto(f"{live_server.url}/t/vision/jobs/{job}/")
                    check(seen, "job", width, theme, shots)
                    assert seen.complaints() == []


def _a_credited_job() -> tuple[str, str, int]:
    """The operator's address, the number of the invoice with the credit, and the job's record."""
    cluster = a_cluster(complete_through="2026-09-01")
    vision = a_tenant("vision", plan=a_plan(), accounts=[(cluster, "vision")])
    a_person("ann@vision.example", vision, role=Role.OWNER)
    a_rule()
    job = ran(cluster, job_id="17", state="FAILED", name="train")
    an_error(cluster, job, 79)
    an_error(cluster, None, 31)
    GpuError.objects.update(
        uuid=UUID, jobs=[POD], gpu_model="NVIDIA H100", node="gpu1-07.cluster.example.org"
    )
    GpuErrorReading.objects.create(cluster=cluster, last_error="https://mimir.example.org does not answer.")
    closed("2026-03", vision)
    review.review_failures(moment=at("2026-04-02"))
    ingest(cluster, a_job(started="2026-04-02 10:00", ended="2026-04-04 10:00"), as_of="2026-06-01")
    number = closed("2026-04", vision).number
    ServiceCredit.objects.update(began_at=at("2090-01-01"))
    GpuError.objects.update(at=at("2090-01-01"))
    return an_operator().email, f"{number}", job


def check(seen: Visit, name: str, width: int, theme: str, shots: str) -> None:
    if shots:
        seen.page.screenshot(path=Path(shots) / f"{name}-{width}-{theme}.png", full_page=True)
    assert seen.overflow() <= 0, (name, width)
    assert seen.clipped() == [], (name, width)
