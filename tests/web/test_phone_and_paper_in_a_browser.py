"""On a phone no amount is cut off and jobs are not longer than people scroll; paper has what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from playwright.sync_api import Page

from portal.core.tenants.models import User
from portal.core.webhooks.models import Webhook, WebhookState
from tests import builders
from tests.web.browser import SKIP_REASON, chromium, visit
from tests.web.house import a_house, signed_in
from tests.web.test_live import running, waiting

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]

LONGEST = 4_000  # pixels of fifty jobs on a phone


def test_fifty_jobs_are_short_on_a_phone_and_paper_is_for_reading(live_server: LiveServer) -> None:
    house = a_house()
    builders.ingest(
        house.cluster,
        *(
            builders.a_job(
                job_id=f"417_{n}",
                name=f"finetune-of-a-vision-model-{n}",
                started="2026-03-20 10:00",
                ended="2026-03-20 10:06",
            )
            for n in range(60)
        ),
    )
    cookie, number = session(house.ann), house.invoice.number
    with chromium() as browser, visit(browser, width=390, theme="dark") as seen:
        enter(seen.page, live_server.url, cookie)
        seen.page.goto(f"{live_server.url}/t/vision-lab/jobs/")
        assert seen.page.locator("#rows tr:not(.ct-more)").count() == 50
        assert seen.page.evaluate("document.documentElement.scrollHeight") <= LONGEST
        assert seen.overflow() <= 0
        seen.page.emulate_media(media="print")
        for path in ("", f"invoices/{number}/"):
            seen.page.goto(f"{live_server.url}/t/vision-lab/{path}")
            shown = seen.page.locator(".ct-side, .ct-main .btn, .ct-main form, .card-actions").filter(
                visible=True
            )
            assert shown.count() == 0
            assert seen.overflow() <= 0
            body = "getComputedStyle(document.body).backgroundColor"
            assert seen.page.evaluate(body) == "rgb(255, 255, 255)"
            padding = "body => parseInt(getComputedStyle(body).paddingLeft)"
            assert seen.page.locator(".card-body").first.evaluate(padding) > 0  # no text on a frame
        tops = [top_of(seen.page, title) for title in ("section[aria-label=Lines]", "#settlement-title")]
        assert tops == sorted(tops)  # what is paid for, then how


@pytest.mark.parametrize("language", ["en", "de"])
def test_no_amount_and_no_time_of_a_job_is_cut_off_on_a_phone(live_server: LiveServer, language: str) -> None:
    house = a_house(close=False)
    names = {"queue": "Guaranteed", "user": "svc-deploy", "name": "reranker-of-documents"}
    builders.ingest(
        house.cluster,
        running("109115", gpus=24, **names),
        running("109116", gpus=24, user="svc-deploy-of-all-models", seen_until="2026-05-06 11:00"),
        waiting("109117", **names),
        builders.a_job(job_id="109118_24", user="svc-deploy", gpus=16, state="OUT_OF_MEMORY"),
    )
    cookie = session(house.ann)
    with chromium() as browser, visit(browser, width=390) as seen:
        enter(seen.page, live_server.url, cookie)
        seen.page.set_extra_http_headers({"Accept-Language": language})
        by_page = {}
        for path in ("live/", "jobs/"):
            seen.page.goto(f"{live_server.url}/t/vision-lab/{path}")
            by_page[path] = seen.cut_cells()
        assert by_page == {"live/": [], "jobs/": []}


@pytest.mark.parametrize("language", ["en", "de"])
def test_what_unfolds_is_no_wider_than_a_phone(live_server: LiveServer, language: str) -> None:
    house = a_house(close=False)
    paths = ("team/", "webhooks/", f"webhooks/at/{house.webhook.name}/", "live/")
    Webhook.objects.update(state=WebhookState.GONE)
    cookie = session(house.ann)
    with chromium() as browser, visit(browser, width=390) as seen:
        enter(seen.page, live_server.url, cookie)
        seen.page.set_extra_http_headers({"Accept-Language": language})
        by_page = {}
        for path in paths:
            seen.page.goto(f"{live_server.url}/t/vision-lab/{path}")
            seen.unfold()
            by_page[path] = (seen.cut_cells(), seen.clipped(), seen.overflow())
        assert by_page == dict.fromkeys(paths, ([], [], 0))


def test_the_x_of_a_name_is_no_sign_of_multiplication(live_server: LiveServer) -> None:
    """Inter's contextual alternates draw reranker-xp2x2rq57 as xp2×2rq57."""
    house = a_house(close=False)
    features = "all => [...new Set(all.map((one) => getComputedStyle(one).fontFeatureSettings))]"
    cookie = session(house.ann)
    with chromium() as browser, visit(browser) as seen:
        enter(seen.page, live_server.url, cookie)
        seen.page.goto(f"{live_server.url}/t/vision-lab/jobs/")
        (everywhere,) = seen.page.eval_on_selector_all("body, body *", features)
        assert '"calt" 0' in everywhere


def top_of(page: Page, selector: str) -> float:
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["y"]


def session(person: User) -> str:
    """The cookie of somebody who signed in."""
    return signed_in(person).cookies[settings.SESSION_COOKIE_NAME].value


def enter(page: Page, site: str, cookie: str) -> None:
    page.context.clear_cookies()
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": site}])
