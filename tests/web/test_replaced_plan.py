"""A plan that was put in the place of another on its first day, before the usage is rated anew."""

from __future__ import annotations

import pytest

from billing.catalog import subscriptions
from billing.models import Subscription
from tests import builders, sharing
from tests.web.full_house import a_full_house
from tests.web.house import House, page

pytestmark = pytest.mark.django_db

PAGES = (
    "",
    "costs/?from=2026-04-01&through=2026-04-30",
    "jobs/?period=2026-04-01",
    "plan/",
    "quote/",
    "budgets/",
    "invoices/",
)


def a_house_with_another_plan() -> House:
    house = a_full_house()
    other = builders.a_plan("instead", prices=[("gpu-hour", {}, "3.00", builders.LONG_AGO)])
    since = Subscription.objects.filter(tenant=house.vision).latest("since").since
    subscriptions.subscribe(tenant=house.vision, plan=other, since=since)
    return house


begun, house = sharing.fixtures(a_house_with_another_plan, "house")


@pytest.mark.parametrize("path", PAGES)
def test_pages_show_what_is_rated_by_the_plan_that_was_there_before(house: House, path: str) -> None:
    assert "</main>" in page(house.ann, f"/t/vision-lab/{path}")
