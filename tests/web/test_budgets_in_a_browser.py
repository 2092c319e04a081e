"""Budgets in a real browser: nothing complains, nothing is cut off."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from billing.admission.reserve import Array
from billing.limits.limits import LimitTerms, set_limit
from billing.models import QuotaAction, QuotaEvery, QuotaMeasure
from billing.quotas import quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from tests import builders, stories
from tests.scenarios.test_reservations import reserve
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit
from tests.web.house import a_house
from tests.web.test_lent import a_house_that_lends
from tests.web.test_reports_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


def test_the_pages_fit_every_window(live_server: LiveServer) -> None:
    house = a_house(close=False)
    moment = builders.at("2026-03-10")
    for name, amount, user in (("yearly", "10", ""), ("of-ben", "8", "ben"), ("a-lot", "10", "ada")):
        terms = QuotaTerms(
            measure=QuotaMeasure.MONEY, amount=Decimal(amount), every=QuotaEvery.YEAR, user=user
        )
        quotas.set_quota(tenant=house.vision, name=name, terms=terms, by=Setter.OPERATOR, moment=moment)
    acting = QuotaTerms(
        measure=QuotaMeasure.GPU_HOURS,
        amount=Decimal(60),
        every=QuotaEvery.YEAR,
        action=QuotaAction.NO_GPU_JOBS,
    )
    quotas.set_quota(tenant=house.vision, name="gpus", terms=acting, by=Setter.OPERATOR, moment=moment)
    pool = replace(acting, amount=Decimal(20), action=QuotaAction.NOTIFY, lends=True)
    shared = quotas.set_quota(
        tenant=house.vision, name="shared", terms=pool, by=Setter.OPERATOR, moment=moment
    )
    project = house.vision.projects.get()
    borrower = replace(acting, amount=Decimal(3), project=project, borrows_from=shared)
    quotas.set_quota(tenant=house.vision, name="borrows", terms=borrower, by=Setter.OPERATOR, moment=moment)
    review.review_quotas(moment=moment)
    set_limit(tenant=house.vision, name="once", terms=LimitTerms(gpus=16, jobs=40), moment=moment)
    now = datetime.now(UTC).replace(microsecond=0)
    reserve(house.cluster, 1, 8, "of a job that waits", now=now, job_id="90")
    reserve(house.cluster, 1, 1, "of an array", now=now, array=Array(1000, 8))
    preview = "?name=march&amount=20&measure=money&every=month&thresholds=50%25&act=preview"
    pages = {
        "budgets": "/t/vision-lab/budgets/",
        "check": "/t/vision-lab/budgets/check/?gpus=8&hours=6&gpu_model=a100",
        "preview": f"/t/vision-lab/budgets/{preview}",
        "operator": "/operator/budgets/",
        "limits": "/operator/limits/",
        "tokens": "/operator/tenants/vision-lab/tokens/",
        "limit": "/operator/limits/?tenant=vision-lab&name=h100&gpus=16&gpu_model=h100&jobs=40&act=preview",
    }
    shots = os.environ.get("SHOTS", "")
    with chromium() as browser:
        for width in WIDTHS:
            for theme in THEMES:
                for person, names in (
                    (house.ann, ("budgets", "preview", "check")),
                    (house.op, ("operator", "limits", "limit", "tokens")),
                ):
                    with visit(browser, width=width, theme=theme) as at:
                        sign_in(at.page, live_server.url, person.email, pages[names[0]])
                        for name in names:
                            at.page.goto(live_server.url + pages[name])
                            assert at.overflow() <= 0, (name, width)
                            assert at.clipped() == [], (name, width)
                            if shots:
                                path = Path(shots) / f"{name}-{width}-{theme}.png"
                                at.page.screenshot(path=path, full_page=True)
                        assert at.complaints() == []


def test_a_pools_periods_and_the_invoice_with_what_it_lent_fit_every_window(live_server: LiveServer) -> None:
    house = a_house_that_lends()
    invoice = stories.closed("2026-03", house.vision, accept="the lab's")
    pages = {
        "lent": f"/t/vision-lab/invoices/{invoice.number}/",
        "pool": "/t/vision-lab/budgets/at/shared/",
        "borrower": "/t/vision-lab/budgets/at/own/",
    }
    shots = os.environ.get("SHOTS", "")
    with chromium() as browser:
        for width in WIDTHS:
            for theme in THEMES:
                with visit(browser, width=width, theme=theme) as at:
                    sign_in(at.page, live_server.url, house.ann.email, pages["lent"])
                    for name, path in pages.items():
                        at.page.goto(live_server.url + path)
                        assert at.overflow() <= 0, (name, width)
                        assert at.clipped() == [], (name, width)
                        if shots:
                            at.page.screenshot(
                                path=Path(shots) / f"{name}-{width}-{theme}.png", full_page=True
                            )
                    assert at.complaints() == []
