"""What pools lent, by project, beside the lines of the invoice that has the use."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from billing.models import QuotaEvery, QuotaMeasure
from billing.quotas import quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from tests import builders, stories
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db
FEBRUARY = builders.at("2026-02-01")


def set_quota(house: House, name: str, amount: str, **said: Any) -> Any:
    terms = QuotaTerms(measure=QuotaMeasure.MONEY, amount=Decimal(amount), every=QuotaEvery.MONTH, **said)
    return quotas.set_quota(tenant=house.vision, name=name, terms=terms, by=Setter.OPERATOR, moment=FEBRUARY)


def a_house_that_lends() -> House:
    """March of Vision Lab before its close: $13.00 used of $10.00 of its own, the rest of a pool of $20.00."""
    house = a_house(close=False)
    builders.own(house.vision, house.cluster, "robots", project="Robots")
    own, robots = house.vision.projects.exclude(name="Robots").get(), house.vision.projects.get(name="Robots")
    pool = set_quota(house, "shared", "20.00", lends=True)
    set_quota(house, "own", "10.00", project=own, borrows_from=pool)
    set_quota(house, "robots", "10.00", project=robots, borrows_from=pool)
    review.review_quotas(moment=builders.at("2026-03-31 12:00"))
    return house


def test_quota_062_what_the_pool_lent_stands_by_project_on_the_invoice() -> None:
    house = a_house_that_lends()
    own = house.vision.projects.exclude(name="Robots").get()
    invoice = stories.closed("2026-03", house.vision, accept="the lab's")
    path = f"/t/vision-lab/invoices/{invoice.number}/"
    text = words(page(house.ann, path))
    assert f"Lent by pools Pool Lent to projects Lent shared March 2026 {own.name}: $3.00 $3.00" in text
    assert "Robots: $" not in text  # it borrowed nothing
    late = {"started": "2026-03-20 10:00", "ended": "2026-03-20 16:00", "gpus": 1, "account": "robots"}
    builders.ingest(house.cluster, builders.a_job(**late))  # $12.00
    assert f"shared March 2026 {own.name}: $3.00 Robots: $2.00 $5.00" in words(page(house.ann, path))
    assert signed_in(house.eve).get(path).status_code == 404


def test_quota_062_the_page_of_a_budget_that_borrowed_says_what_of_it_its_pool_lent() -> None:
    house = a_house_that_lends()
    text = words(page(house.ann, "/t/vision-lab/budgets/at/own/"))
    assert "March 2026 Within budget $13.00 130 % $3.00 of it from shared $10.00" in text


def test_quota_062_an_invoice_of_a_tenant_without_pools_says_nothing_of_them() -> None:
    house = a_house()
    number = house.vision.invoices.exclude(number=None).order_by("pk")[0].number
    assert "Lent by pools" not in page(house.ann, f"/t/vision-lab/invoices/{number}/")
