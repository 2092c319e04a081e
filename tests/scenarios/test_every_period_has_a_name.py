"""Whatever a tenant changes of its calendar, each of its periods is found by a month and can be closed."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from billing.catalog import billing_periods
from billing.models import BillingPeriod
from portal.core.tenants.models import Tenant
from tests import builders
from tests.builders import LATER, at
from tests.tiers import thinned

pytestmark = pytest.mark.django_db

ZONES = ("UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland")
ANCHORS = ((1, 1), (1, 15), (15, 1), (31, 1), (1, 31), (28, 3))


@pytest.mark.parametrize(("before", "after", "anchors"), thinned(product(ZONES, ZONES, ANCHORS), every=7))
def test_closed_one_after_the_other(before: str, after: str, anchors: tuple[int, int]) -> None:
    lab = builders.a_tenant(timezone=before, anchor_day=anchors[0])
    billing_periods.ensure(tenant=lab, since=at("2026-02-10"), until=at("2026-04-20"))
    Tenant.objects.update(timezone=after, anchor_day=anchors[1])
    lab.refresh_from_db()
    billing_periods.ensure(tenant=lab, since=at("2026-02-10"), until=at("2026-08-01"))

    for period in BillingPeriod.objects.filter(end__gt=at("2026-03-10")).order_by("start"):
        day = period.start + timedelta(days=1)
        months = {
            (moment.year, moment.month) for moment in (period.start - timedelta(days=1), period.start, day)
        }
        assert any(is_reached(lab, month, period) for month in sorted(months, reverse=True)), period.start


def is_reached(lab: Tenant, month: tuple[int, int], period: BillingPeriod) -> bool:
    """By closing the month once, or once more where two periods start in it."""
    for _ in range(2):
        candidate = billing_periods.starting_in(tenant=lab, year=month[0], month=month[1])
        if candidate is None or candidate.closed_at is not None:
            return False
        if candidate == period:
            BillingPeriod.objects.filter(pk=candidate.pk).update(closed_at=LATER)
            return True
        if candidate.start > period.start:
            return False
        BillingPeriod.objects.filter(pk=candidate.pk).update(closed_at=LATER)
    return False
