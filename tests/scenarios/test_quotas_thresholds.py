"""Thresholds of quotas: each tells once a period."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest
from django.core import mail
from django.db import connection

from billing.models import (
    Notice,
    QuotaCrossing,
    QuotaMeasure,
    QuotaPeriod,
)
from billing.quotas import review
from clusters.models import Cluster
from portal.core.tenants.models import Role, Tenant
from tests import builders
from tests.quota_stories import a_quota, a_vision, an_unseen_quota, look, shrink, spend, subjects, told_events

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("mailed")]
ALL = ("50%", "80%", "100%")


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster()


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return a_vision(cluster, ben=Role.MEMBER)


def test_quota_019_thirty_passes_at_85_percent_tell_once(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("80%", "100%"))
    spend(cluster, "850")
    for minute in range(30):
        look(f"2026-03-03 12:{minute:02}")
    assert subjects() == ["Budget monthly: 80% is used"]
    (message,) = mail.outbox
    assert message.to == ["ann@vision.example"]
    text = " ".join(str(message.body).split())
    assert "$850.00 of the $1,000.00 of budget monthly are used." in text
    assert "The budget starts again on 1 April 2026. A budget only notifies: no job is stopped by it." in text
    assert told_events() == ["used 80%"]


def test_quota_019_two_passes_at_once_tell_once(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision)
    spend(cluster, "850")
    barrier = threading.Barrier(4)

    def pass_() -> None:
        try:
            barrier.wait()
            review.review_quotas(moment=builders.at("2026-03-03"))
        finally:
            connection.close()

    threads = [threading.Thread(target=pass_) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Notice.objects.count() == 1
    assert QuotaCrossing.objects.count() == 2


def test_quota_020_one_leap_is_one_mail_and_an_event_each(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=ALL)
    spend(cluster, "400")
    look("2026-03-03 12:00")
    assert mail.outbox == []
    spend(cluster, "900")
    look("2026-03-03 12:01")
    assert subjects() == ["Budget monthly: 100% is used"]
    text = " ".join(str(mail.outbox[0].body).split())
    assert "Thresholds reached: 50%, 80%, 100%." in text
    assert "known late" not in text
    assert told_events() == ["used 50%", "used 80%", "used 100%"]


def test_quota_021_fifty_projects_are_one_mail_with_a_table(cluster: Cluster, vision: Tenant) -> None:
    for number in range(50):
        builders.own(vision, cluster, f"account-{number}", project=f"project-{number}")
    for number, project in enumerate(vision.projects.filter(name__startswith="project-")):
        an_unseen_quota(vision, f"of-{number}", project=project, amount=Decimal(10))
    look("2026-03-01")
    facts = [builders.a_job(account=f"account-{number}", gpus=10) for number in range(50)]
    builders.ingest(cluster, *facts)
    look("2026-03-03")
    (message,) = mail.outbox
    assert message.subject == "50 budgets of Vision: what has changed"
    assert message.body.count("$20.00 of $10.00; reached 50%, 80%, 100%") == 50


def test_quota_022_absolute_and_relative_thresholds_fire_alike(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("10%", "100.00"))
    spend(cluster, "99.50")
    look("2026-03-03")
    assert told_events() == []
    spend(cluster, "0.50", user="ann")
    look("2026-03-03 12:00")  # the amount exactly
    assert sorted(told_events()) == ["used 10%", "used 100"]


def test_quota_022_all_of_it_exactly_is_reached(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("100%",))
    spend(cluster, "1000")
    look("2026-03-03")
    assert told_events() == ["used 100%"]


def test_quota_023_nothing_is_reached_by_the_first_second(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("100%",), measure=QuotaMeasure.GPU_HOURS, amount=Decimal(0))
    look("2026-03-02")
    assert told_events() == []
    builders.ingest(cluster, builders.a_job(started="2026-03-02 10:00", ended="2026-03-02 10:00:01"))
    look("2026-03-03")
    assert told_events() == ["used 100%"]


def test_quota_024_what_repeats_tells_each_step_once(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("100%",), repeat_every=Decimal(250))
    spend(cluster, "1000")
    look("2026-03-03 10:00")
    spend(cluster, "260", user="ann")
    look("2026-03-03 11:00")
    look("2026-03-03 11:01")
    spend(cluster, "740", user="ann")  # 2,000: three more at once
    look("2026-03-03 12:00")
    assert subjects() == [
        "Budget monthly: 100% is used",
        "Budget monthly: $1,250.00 is used",
        "Budget monthly: $2,000.00 is used",
    ]
    assert told_events() == ["used 100%", *(f"used +{step} × 250" for step in (1, 2, 3, 4))]


def test_quota_010_back_under_is_told_once_and_fires_again(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("100%",))
    job = spend(cluster, "1005")
    look("2026-03-03 10:00")
    shrink(cluster, job, "999")
    look("2026-03-03 11:00")  # a rounding below is no news
    shrink(cluster, job, "980")
    look("2026-03-03 12:00")
    look("2026-03-03 12:01")
    shrink(cluster, job, "1010")
    look("2026-03-03 13:00")
    assert subjects() == [
        "Budget monthly: 100% is used",
        "Budget monthly is back under 100%",
        "Budget monthly: 100% is used",
    ]
    assert told_events() == ["used 100%", "below 100%", "used 100%"]


def test_quota_015_a_raise_is_no_news_and_a_lower_amount_holds_at_once(
    cluster: Cluster, vision: Tenant
) -> None:
    a_quota(vision, thresholds=("100%",))
    spend(cluster, "1000")
    look("2026-03-03 10:00")
    a_quota(vision, made="2026-03-03 11:00", thresholds=("100%",), amount=Decimal(1500))
    assert told_events() == ["used 100%"]
    assert not QuotaCrossing.objects.filter(cleared_at=None).exists()
    a_quota(vision, made="2026-03-03 12:00", thresholds=("100%",), amount=Decimal(600))
    assert told_events() == ["used 100%", "used 100%"]


def test_quota_017_what_was_passed_before_it_was_made_is_not_told(cluster: Cluster, vision: Tenant) -> None:
    spend(cluster, "700")
    a_quota(vision, made="2026-03-15", thresholds=("50%", "80%"))
    assert mail.outbox == []
    assert [(row.threshold, row.silent) for row in QuotaCrossing.objects.all()] == [("50%", True)]
    spend(cluster, "150", user="ann")
    look("2026-03-16")
    assert told_events() == ["used 80%"]


def test_quota_017_that_all_of_a_new_budget_is_used_already_is_told_once(
    cluster: Cluster, vision: Tenant
) -> None:
    spend(cluster, "1300")
    a_quota(vision, made="2026-03-15", thresholds=ALL)
    look("2026-03-16")
    assert subjects() == ["Budget monthly: 100% is used"]
    assert "$1,300.00 of the $1,000.00 of budget monthly are used" in str(mail.outbox[0].body)
    assert told_events() == ["used 100%"]
    listed = QuotaCrossing.objects.order_by("pk").values_list("threshold", "silent")
    assert list(listed) == [("50%", True), ("80%", True), ("100%", False)]


def test_quota_018_a_new_period_tells_anew_and_the_old_one_nothing(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("80%",))
    spend(cluster, "850")
    look("2026-03-20")
    look("2026-04-01 03:00")  # nobody looked for hours
    spend(cluster, "900", day="2026-04-01")
    look("2026-04-01 20:00")
    assert told_events() == ["used 80%", "used 80%"]
    starts = QuotaPeriod.objects.order_by("start").values_list("start", flat=True)
    assert list(starts) == [builders.at("2026-03-01"), builders.at("2026-04-01")]


def test_quota_009_late_usage_of_an_earlier_period_sends_nothing(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("80%",))
    look("2026-04-02")
    spend(cluster, "900")
    look("2026-04-03")
    assert told_events() == []


def test_quota_008_a_crossing_by_usage_of_earlier_days_is_late(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("80%",))
    spend(cluster, "850", account="stray")
    look("2026-03-10")
    builders.own(vision, cluster, "stray")
    look("2026-03-11")
    look("2026-03-12")
    assert subjects() == ["Budget monthly: 80% is used"]
    assert "Usage of earlier days became known late" in mail.outbox[0].body
    assert QuotaCrossing.objects.get().late
