"""What a budget is forecast to come to: the pace of the last whole days, from what is read on."""

from __future__ import annotations

from fractions import Fraction

import pytest

from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.quota_stories import read_through
from tests.scenarios.test_quotas_count import a_quota, cluster, figure, run, vision

__all__ = ["cluster", "vision"]

pytestmark = pytest.mark.django_db


def test_quota_025_the_pace_of_the_last_whole_days_is_carried_on(cluster: Cluster, vision: Tenant) -> None:
    quota = a_quota(vision)
    for day in range(1, 11):
        run(cluster, started=f"2026-03-{day:02} 10:00", ended=f"2026-03-{day:02} 12:00", gpus=10)
    assert figure(quota, "2026-03-03 12:00").forecast is None  # two whole days tell too little
    read_through(cluster, "2026-03-11 00:00")
    # Ten days of 40.00, and 21 more at the pace of the last seven.
    assert figure(quota, "2026-03-11 00:00").forecast == 400 + 21 * 40


def test_a_forecast_stays_while_nothing_new_is_read(cluster: Cluster, vision: Tenant) -> None:
    quota = a_quota(vision)
    for day in range(1, 11):
        run(cluster, started=f"2026-03-{day:02} 10:00", ended=f"2026-03-{day:02} 12:00", gpus=10)
    read_through(cluster, "2026-03-11 06:00")
    moments = ("2026-03-11 06:00", "2026-03-11 08:30", "2026-03-12 01:00")
    assert {figure(quota, moment).forecast for moment in moments} == {400 + Fraction(83, 4) * 40}
    # What was not read for more than a week is not waited for: its days are over, and nothing was used on them.
    assert figure(quota, "2026-03-19 00:00").forecast == 400
