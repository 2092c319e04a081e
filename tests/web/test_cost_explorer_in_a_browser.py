"""The pages of costs in a real browser: nothing complains, nothing is cut off, and nothing needs a script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import builders
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit
from tests.web.house import a_house
from tests.web.test_reports_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


def test_the_pages_fit_every_window(live_server: LiveServer) -> None:
    house = a_house()
    people = [f"engineer-{n}@very-long-name.example" for n in range(9)]
    builders.ingest(
        house.cluster,
        *(
            builders.a_job(
                job_id=f"a{n}",
                user=people[n % 9],
                gpus=1 + n % 5,
                gpu_model="a100",
                queue=("gpu", "", "night")[n % 3],
                started=f"2026-{3 + n % 2:02}-{n % 27 + 1:02} 10:00",
                ended=f"2026-{3 + n % 2:02}-{n % 27 + 1:02} 17:13",
            )
            for n in range(120)
        ),
    )
    april = "from=2026-04-01&through=2026-04-30"
    pages = {
        "costs": f"/t/vision-lab/costs/?{april}&by=user",
        "filters": f"/t/vision-lab/costs/?{april}&by=queue&and=gpu_model&step=week&queue=gpu&compare=month",
        "change": f"/t/vision-lab/costs/change/?{april}",
        "none": "/t/vision-lab/costs/?from=2025-01-01&through=2025-01-31",
        "wrong": "/t/vision-lab/costs/change/?from=2025-02-01&through=2025-01-31",
        "jobs": f"/t/vision-lab/jobs/?{april}&queue=gpu",
    }
    shots = os.environ.get("SHOTS", "")
    with chromium() as browser:
        for width in WIDTHS:
            for theme in THEMES:
                with visit(browser, width=width, theme=theme) as at:
                    sign_in(at.page, live_server.url, house.ann.email, pages["costs"])
                    for name, address in pages.items():
                        at.page.goto(live_server.url + address)
                        assert at.overflow() <= 0, (name, width)
                        assert at.clipped() == [], (name, width)
                        if shots:
                            at.page.screenshot(
                                path=Path(shots) / f"{name}-{width}-{theme}.png", full_page=True
                            )
                    assert at.complaints() == []
        with visit(browser, scripts=False) as at:
            sign_in(at.page, live_server.url, house.ann.email, pages["costs"])
            assert at.page.locator(".ct-stacks rect").count() > 20
            at.page.get_by_role("link", name="Why did it change?").first.click()
            at.page.locator("td.ct-key a").first.click()
            assert at.page.locator("#rows tr").count() > 0
