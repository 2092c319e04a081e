"""How few clicks and fields it takes: a budget that tells in time, and why this month costs more than the last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core import mail
from playwright.sync_api import expect

from billing import tasks
from tests import builders
from tests.web.browser import SKIP_REASON, chromium, visit
from tests.web.house import a_house
from tests.web.test_close_in_a_browser import meanwhile
from tests.web.test_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


def test_a_budget_that_tells_in_time_takes_one_field_and_three_clicks(
    live_server: LiveServer, settings: Any
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, live_server.url
    house = a_house(close=False)
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        signed_in, seconds = (len(seen.clicks()), len(seen.fields())), seen.seconds(reading=False)
        page.get_by_role("link", name="Budgets").click()
        page.get_by_label("Amount", exact=True).fill("100.00")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("button", name="Save budget").click()
        expect(page.get_by_text("Budget monthly is saved.")).to_be_visible()
        assert seen.clicks()[signed_in[0] :] == ["Budgets", "Preview", "Save budget"]
        assert len(seen.fields()) - signed_in[1] == 1
        assert seen.seconds(reading=False) - seconds <= 30  # half of the minute is for reading
        expect(page.get_by_label("Name", exact=True)).to_have_value("")  # a second one is named by hand

        def works_and_is_told() -> None:
            now = datetime.now(UTC).replace(microsecond=0)
            began = now.replace(day=1, hour=0, minute=0, second=0) - timedelta(days=1)
            job = builders.a_job(
                gpus=5000, started=f"{began:%Y-%m-%d %H:%M:%S}", ended=f"{now:%Y-%m-%d %H:%M:%S}"
            )
            builders.ingest(house.cluster, job, as_of=f"{now:%Y-%m-%d %H:%M:%S}")
            tasks.review_quotas()
            tasks.send_notices()

        meanwhile(tasks.review_quotas)  # each minute; what is passed already when it is made is no news
        meanwhile(works_and_is_told)
        messages = [message for message in mail.outbox if "ann@vision.example" in message.to]
        assert ["monthly" in f"{message.subject} {message.body}" for message in messages] == [True]
        assert seen.complaints() == []


def test_why_it_is_higher_takes_one_click_its_jobs_two_and_their_formula_three(
    live_server: LiveServer,
) -> None:
    house = a_house()
    now = datetime.now(UTC)
    first = now.replace(day=1)
    months = {
        "before": (first - timedelta(days=1)).replace(day=1) - timedelta(days=1),
        "after": first - timedelta(days=1),
    }
    for name, hours in (("before", 1), ("after", 5)):
        day = f"{months[name].replace(day=10):%Y-%m-%d}"
        job = builders.a_job(
            job_id=f"of-the-month-{name}", started=f"{day} 10:00", ended=f"{day} {10 + hours}:00"
        )
        builders.ingest(house.cluster, job, as_of=f"{now:%Y-%m-%d %H:%M}")
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/?period={months['after'].replace(day=1):%Y-%m-%d}")
        signed_in = len(seen.clicks())
        page.get_by_role("link", name="Why did it change?").click()
        expect(page.get_by_role("heading", name="Reasons for +$8.00")).to_be_visible()
        reason = page.get_by_role("row", name="ben")
        expect(reason).to_contain_text("+$8.00")
        reason.get_by_role("link").click()
        expect(page.locator("#rows")).to_contain_text("of-the-month-after")
        page.get_by_role("link", name="of-the-month-after").click()
        expect(page.get_by_text("18,000 GPU-seconds ÷ 3,600 × $2.00 = $10.00")).to_be_visible()
        assert len(seen.clicks()) - signed_in == 3
        assert seen.complaints() == []
