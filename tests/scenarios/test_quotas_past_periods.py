"""Periods of quotas that have ended: late usage changes their figure, and nobody hears of it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from billing.models import DailyUsage, DayTotal, Quota, QuotaCredits, QuotaEvery, QuotaMeasure
from billing.quotas import figures, quotas
from billing.quotas.past_periods import PastPeriod, load_past_periods
from billing.quotas.proof import prove_quotas
from clusters.models import Cluster
from portal.core.tenants.models import Corrections, Tenant
from tests import builders, stories
from tests.quota_stories import a_quota, a_vision, look, shrink, spend, subjects, told_events

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster()


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return a_vision(cluster)


def dollars(period: PastPeriod) -> tuple[str, str]:
    """Used and amount."""
    return f"{period.used}", f"{period.amount}"


def lent(period: PastPeriod) -> list[tuple[str, str]]:
    return [(loan.project, f"{loan.used}") for loan in period.loans]


def past(quota: Quota, moment: str) -> list[PastPeriod]:
    return load_past_periods(quotas.list_quotas().get(pk=quota.pk), moment=builders.at(moment))


def used(quota: Quota, moment: str) -> Fraction:
    row = quotas.list_quotas().get(pk=quota.pk)
    return figures.load_figures([row], moment=builders.at(moment))[quota.pk].used


def february(vision: Tenant, cluster: Cluster) -> tuple[Quota, Quota, str]:
    """$100.00 of $120.00 used and billed; a gross quota, a net one, and the job."""
    gross = a_quota(vision, made="2026-02-01", amount=Decimal(120), thresholds=["100%"])
    net = a_quota(vision, "net", made="2026-02-01", credits=QuotaCredits.NET)
    job = spend(cluster, "100", "2026-02-10")
    look("2026-02-28 12:00")
    assert stories.closed("2026-02", vision, accept="the lab's").number
    spend(cluster, "7", "2026-03-01")
    look("2026-03-04")
    return gross, net, job


@pytest.mark.usefixtures("mailed")
def test_quota_009_late_usage_of_a_closed_period_is_in_its_figure_and_sends_nothing(
    cluster: Cluster, vision: Tenant
) -> None:
    gross, net, _ = february(vision, cluster)
    assert [one.used for one in past(gross, "2026-03-04")] == [100]
    mail.outbox.clear()
    spend(cluster, "30", "2026-02-20")
    look("2026-03-05")
    assert not any("udget" in subject for subject in subjects())
    assert told_events() == []
    assert [dollars(one) for one in past(gross, "2026-03-05")] == [("130", "120")]
    assert [one.used for one in past(net, "2026-03-05")] == [130]
    # The correction comes with March's invoice: what is billed counts it there, what is used does not.
    assert used(gross, "2026-03-05") == 7
    assert used(net, "2026-03-05") == 37


def test_quota_009_what_is_billed_of_it_stays_in_the_period_whose_invoice_brought_it(
    cluster: Cluster, vision: Tenant
) -> None:
    gross, net, _ = february(vision, cluster)
    spend(cluster, "30", "2026-02-20")
    assert used(gross, "2026-03-31") == 7
    assert used(net, "2026-03-31") == 37
    look("2026-03-31")
    stories.close("2026-03", vision, accept="the lab's")
    look("2026-04-04")
    assert [one.used for one in past(net, "2026-04-04")] == [37, 130]
    assert [one.used for one in past(gross, "2026-04-04")] == [7, 130]
    assert used(net, "2026-04-04") == 0


@pytest.mark.parametrize("policy", Corrections.values)
def test_quota_009_usage_that_turns_out_less_lowers_what_is_billed_next(
    cluster: Cluster, vision: Tenant, policy: str
) -> None:
    vision.corrections = policy
    vision.save()
    _, net, job = february(vision, cluster)
    shrink(cluster, job, "90", "2026-02-10")
    spend(cluster, "33", "2026-03-10")
    assert used(net, "2026-03-31") == 30
    look("2026-03-31")
    stories.close("2026-03", vision, accept="the lab's")
    assert [one.used for one in past(net, "2026-04-04")] == [30, 90]


def test_quota_009_a_correction_counts_before_anything_is_used_in_the_month(
    cluster: Cluster, vision: Tenant
) -> None:
    net = a_quota(vision, made="2026-02-01", credits=QuotaCredits.NET)
    spend(cluster, "100", "2026-02-10")
    assert stories.closed("2026-02", vision, accept="the lab's").number
    assert used(net, "2026-03-05") == 0
    spend(cluster, "30", "2026-02-20")
    assert used(net, "2026-03-05") == 30
    assert not vision.periods.filter(start=builders.at("2026-03-01")).exists()
    spend(cluster, "7", "2026-03-06")
    assert used(net, "2026-03-07") == 37


def test_quota_009_while_a_month_is_open_its_late_usage_is_no_correction_of_the_next(
    cluster: Cluster, vision: Tenant
) -> None:
    net = a_quota(vision, made="2026-02-01", credits=QuotaCredits.NET)
    spend(cluster, "100", "2026-02-10")
    spend(cluster, "7", "2026-03-01")
    assert used(net, "2026-03-02") == 7


def test_quota_009_what_lies_in_the_same_year_is_in_it_by_its_use_and_no_correction(
    cluster: Cluster, vision: Tenant
) -> None:
    february(vision, cluster)
    year = a_quota(vision, "year", made="2026-02-01", every=QuotaEvery.YEAR, credits=QuotaCredits.NET)
    spend(cluster, "30", "2026-02-20")
    assert used(year, "2026-03-31") == 137
    look("2026-03-31")
    stories.close("2026-03", vision, accept="the lab's")
    assert used(year, "2026-04-04") == 137


def test_quota_062_what_a_pool_lent_stands_by_project_and_period(cluster: Cluster) -> None:
    vision = builders.a_tenant("vision", plan=builders.a_plan())
    for name in ("nlp", "robots"):
        builders.own(vision, cluster, name, project=name)
    pool = a_quota(vision, "shared", made="2026-02-01", amount=Decimal(200), lends=True)
    for name in ("nlp", "robots"):
        project = vision.projects.get(name=name)
        terms: dict[str, Any] = {"amount": Decimal(300), "project": project, "borrows_from": pool}
        a_quota(vision, name, made="2026-02-01", **terms)
    spend(cluster, "350", "2026-02-02", account="nlp")
    spend(cluster, "320", "2026-02-03", account="robots")
    look("2026-02-20")
    spend(cluster, "310", "2026-03-02", account="nlp")
    look("2026-03-20")
    (of_february,) = past(pool, "2026-03-20")
    assert lent(of_february) == [("nlp", "50"), ("robots", "20")]
    assert dollars(of_february) == ("70", "200")
    of_both = past(pool, "2026-04-20")
    assert [lent(one) for one in of_both] == [
        [("nlp", "10"), ("robots", "0")],
        [("nlp", "50"), ("robots", "20")],
    ]


def test_quota_009_the_end_state_is_by_the_rule_of_the_running_period(
    cluster: Cluster, vision: Tenant
) -> None:
    """Of nothing, by the first second; with what could be borrowed."""
    nothing = a_quota(vision, "nothing", made="2026-02-01", user="eve", amount=Decimal(0))
    pool = a_quota(vision, "shared", made="2026-02-01", amount=Decimal(200), lends=True)
    project = vision.projects.get()
    own = a_quota(vision, "own", made="2026-02-01", amount=Decimal(300), project=project, borrows_from=pool)
    spend(cluster, "350", "2026-02-02")
    look("2026-02-20")
    assert [past(quota, "2026-03-02")[0].is_used_up for quota in (nothing, own, pool)] == [False] * 3
    spend(cluster, "1", "2026-02-03", user="eve")
    spend(cluster, "149", "2026-02-04")
    assert [past(quota, "2026-03-02")[0].is_used_up for quota in (nothing, own, pool)] == [True] * 3


def test_a_rolling_window_has_no_past_and_a_changed_measure_begins_anew(
    cluster: Cluster, vision: Tenant
) -> None:
    rolling = a_quota(vision, "week", every=QuotaEvery.ROLLING, hours=168)
    spend(cluster, "10")
    look("2026-03-20")
    assert past(rolling, "2026-05-01") == []
    quota = a_quota(vision)
    look("2026-03-20")
    hours = a_quota(vision, made="2026-04-10", measure=QuotaMeasure.GPU_HOURS)
    look("2026-04-20")
    assert [one.period.start.date() for one in past(hours, "2026-05-02")] == [date(2026, 4, 1)]
    assert quota.pk == hours.pk


def test_many_periods_take_as_many_queries_as_one(cluster: Cluster, vision: Tenant) -> None:
    quota = a_quota(vision, every=QuotaEvery.DAY)
    for day in range(2, 13):
        spend(cluster, "5", f"2026-03-{day:02}")
        look(f"2026-03-{day:02} 23:00")
    past(quota, "2026-03-03")  # what a connection looks up once
    counts = []
    for moment, periods in (("2026-03-03", 2), ("2026-03-13", 12)):
        with CaptureQueriesContext(connection) as queries:
            assert len(past(quota, moment)) == periods
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_quota_061_of_the_period_before_and_of_rolling_windows_too(cluster: Cluster, vision: Tenant) -> None:
    for day in (25, 26, 27):
        times = {"started": f"2026-02-{day} 22:00", "ended": f"2026-02-{day + 1} 03:00"}
        builders.ingest(cluster, builders.a_job(**times, gpus=3, suspended=77))
    a_quota(vision, made="2026-02-01")
    a_quota(vision, "made-today", made="2026-03-02", user="ben")
    a_quota(vision, "week", every=QuotaEvery.ROLLING, hours=168)
    a_quota(vision, "hour", every=QuotaEvery.ROLLING, hours=1)
    a_quota(vision, "bens-week", every=QuotaEvery.ROLLING, hours=168, user="ben")
    moment = builders.at("2026-03-02 12:00")
    assert prove_quotas(moment=moment).broken == []
    # A user's budget counts from daily usage, one of the whole tenant from totals of days.
    for rows, named in (
        (DailyUsage.objects.all(), ["vision/bens-week"]),
        (DayTotal.objects.all(), ["vision/bens-week", "vision/monthly", "vision/week"]),
    ):
        rows.filter(day=date(2026, 2, 26)).update(units=F("units") + 1)
        broken = prove_quotas(moment=moment).broken
        assert sorted(text.split(",")[0] for text in broken) == named
