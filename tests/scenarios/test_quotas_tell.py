"""Forecasts of quotas, old data, and who is told when."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from billing.emails import delivery
from billing.models import (
    Notice,
    NoticeState,
    QuotaAction,
    QuotaChange,
    QuotaEvery,
    QuotaMeasure,
    QuotaPeriod,
    QuotaReview,
)
from billing.quotas import review
from clusters.models import Cluster, Connection
from portal.core.tenants.models import Membership, Role, Tenant, User
from tests import builders
from tests.quota_stories import a_quota, a_vision, look, read_through, shrink, spend, subjects, told_events

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("mailed")]


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster()


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return a_vision(cluster, ben=Role.MEMBER)


def steady(cluster: Cluster, days: range, dollars: str = "40") -> None:
    for day in days:
        spend(cluster, dollars, f"2026-03-{day:02}")


def test_quota_025_a_forecast_is_told_once_and_not_too_early(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("100%",), forecasts=("100%",))
    steady(cluster, range(1, 3))
    look("2026-03-03 12:00")
    assert told_events() == []
    steady(cluster, range(3, 8))
    for moment in ("2026-03-08 00:00", "2026-03-09 00:00"):
        read_through(cluster, moment)
        look(moment)
    assert subjects() == ["Budget monthly is forecast to come to $1,240.00"]
    assert told_events() == ["forecast 100%"]


def test_quota_025_of_daily_budgets_a_day_lies_between_two_forecasts(
    cluster: Cluster, vision: Tenant
) -> None:
    a_quota(vision, thresholds=(), forecasts=("100%",), every=QuotaEvery.DAY, amount=Decimal(30))
    steady(cluster, range(1, 8))
    look("2026-03-08 06:00")
    look("2026-03-09 00:00")  # another day, and eighteen hours later
    assert told_events() == ["forecast 100%"]
    spend(cluster, "100", "2026-03-08", user="ann")
    look("2026-03-09 06:30")
    assert told_events() == ["forecast 100%", "forecast 100%"]


def test_quota_026_a_forecast_that_falls_and_rises_again_is_no_news(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("100%",), forecasts=("100%",))
    steady(cluster, range(1, 8))
    look("2026-03-08")
    read_through(cluster, "2026-03-14")
    look("2026-03-14")  # nothing was used for days: it has fallen
    assert (QuotaPeriod.objects.get().forecast or 0) < 1000
    steady(cluster, range(14, 21), "80")
    look("2026-03-21")
    assert (QuotaPeriod.objects.get().forecast or 0) > 1000
    assert told_events() == ["forecast 100%"]


def test_quota_027_old_data_waits_and_is_told_once(cluster: Cluster, vision: Tenant) -> None:
    Connection.objects.create(cluster=cluster, base_url="https://slurm.example")
    a_quota(vision, thresholds=("50%",), forecasts=("100%",))
    steady(cluster, range(1, 8))
    Cluster.objects.update(complete_through=builders.at("2026-03-08 04:00"))
    look("2026-03-08 10:00")
    look("2026-03-08 11:00")
    assert told_events() == ["stale"]
    (message,) = mail.outbox
    assert message.subject == "Budget monthly: no new usage since 2026-03-08 04:00"
    Cluster.objects.update(complete_through=builders.at("2026-03-08 12:00"))
    look("2026-03-08 12:01")
    assert told_events() == ["stale", "forecast 100%"]
    Cluster.objects.update(complete_through=builders.at("2026-03-08 13:00"))
    look("2026-03-08 20:00")
    assert told_events() == ["stale", "forecast 100%", "stale"]


def test_quota_027_nothing_is_let_go_because_nothing_came(cluster: Cluster, vision: Tenant) -> None:
    Connection.objects.create(cluster=cluster, base_url="https://slurm.example")
    Cluster.objects.update(complete_through=builders.at("2026-03-02 12:00"))
    a_quota(vision, made="2026-03-02", thresholds=("100%",), every=QuotaEvery.ROLLING, hours=24,
            measure=QuotaMeasure.GPU_HOURS, amount=Decimal(10))  # fmt: skip
    builders.ingest(cluster, builders.a_job(gpus=20))
    look("2026-03-02 12:00")
    look("2026-03-03 12:00")  # the window is empty, and the cluster has not been read for a day
    assert told_events() == ["used 100%", "stale"]
    Cluster.objects.update(complete_through=builders.at("2026-03-03 12:00"))
    look("2026-03-03 12:01")
    assert told_events() == ["used 100%", "stale", "below 100%"]


def test_quota_014_a_rolling_window_lets_go_without_new_usage(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, made="2026-03-02", thresholds=("100%",), every=QuotaEvery.ROLLING, hours=24,
            measure=QuotaMeasure.GPU_HOURS, amount=Decimal(10))  # fmt: skip
    builders.ingest(cluster, builders.a_job(gpus=20))
    look("2026-03-02 12:00")
    assert QuotaReview.objects.get().next_at == builders.at("2026-03-02 12:00:30")
    look("2026-03-03 10:20")
    assert told_events() == ["used 100%"]
    look("2026-03-03 10:35")
    assert told_events() == ["used 100%", "below 100%"]


def test_quota_028_owners_and_billing_or_named_members_are_told(cluster: Cluster, vision: Tenant) -> None:
    builders.a_person("carla@vision.example", vision, Role.BILLING)
    a_quota(vision, thresholds=("50%",))
    a_quota(vision, "bens", user="ben", thresholds=("50%",), recipients=("ben@vision.example",))
    spend(cluster, "900")
    look("2026-03-03")
    recipients = {tuple(message.to): message.subject for message in mail.outbox}
    assert recipients == {
        ("ann@vision.example", "carla@vision.example"): "Budget monthly: 50% is used",
        ("ben@vision.example",): "Budget bens: 50% is used",
    }


def test_quota_028_a_member_who_sees_own_jobs_alone_is_told_of_budgets_of_these_alone(
    cluster: Cluster, vision: Tenant
) -> None:
    Tenant.objects.filter(pk=vision.pk).update(members_see_own=True)
    Membership.objects.filter(user__email="ben@vision.example").update(scheduler_users=["ben"])
    both = ("ann@vision.example", "ben@vision.example")
    a_quota(vision, thresholds=("50%",), recipients=both)
    a_quota(vision, "bens", user="ben", thresholds=("50%",), recipients=("ben@vision.example",))
    a_quota(
        vision,
        "doras",
        user="dora",
        thresholds=("50%",),
        recipients=("ben@vision.example", "ann@vision.example"),
    )
    spend(cluster, "900")
    spend(cluster, "600", "2026-03-03", user="dora")
    look("2026-03-04")
    told = [(tuple(message.to), str(message.subject)) for message in mail.outbox]
    assert sorted(told) == [
        (("ann@vision.example",), "Budget doras: 50% is used"),
        (("ann@vision.example",), "Budget monthly: 50% is used"),
        (("ben@vision.example",), "Budget bens: 50% is used"),
    ]


def test_quota_028_the_e_mail_says_that_no_job_can_be_submitted(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("50%", "100%"), action=QuotaAction.NO_SUBMISSIONS)
    spend(cluster, "600")
    look("2026-03-03")
    spend(cluster, "600", "2026-03-03")
    look("2026-03-04")
    before, after = [" ".join(str(message.body).split()) for message in mail.outbox]
    assert "When all of it is used, no new job can be submitted in its accounts." in before
    assert "No new job can be submitted in its accounts until less is used" in after


def test_quota_028_who_was_removed_is_told_nothing(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, "bens", user="ben", thresholds=("50%",), recipients=("ben@vision.example",))
    spend(cluster, "900")
    review.review_quotas(moment=builders.at("2026-03-03"))
    Membership.objects.filter(user=User.objects.get(email="ben@vision.example")).delete()
    delivery.send_notices(moment=builders.at("2026-03-03"))
    assert mail.outbox == []
    assert Notice.objects.get().state == NoticeState.SKIPPED


def refused(*_: Any, **__: Any) -> None:
    raise ConnectionRefusedError("mail.example does not answer")


def test_quota_029_a_mail_server_that_was_down_sends_what_still_holds(
    cluster: Cluster, vision: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_quota(vision, thresholds=("100%",))
    a_quota(vision, "daily", thresholds=("100%",), every=QuotaEvery.DAY, amount=Decimal(100))
    job = spend(cluster, "1010", "2026-03-02")
    with monkeypatch.context() as patched:
        patched.setattr("django.core.mail.backends.locmem.EmailBackend.open", refused, raising=False)
        look("2026-03-02 19:00")
    assert mail.outbox == []
    look("2026-03-03 00:10")  # five hours later the day's budget is another day's
    assert subjects() == ["Budget monthly: 100% is used"]
    shrink(cluster, job, "1005")
    look("2026-03-03 01:00")
    assert len(mail.outbox) == 1


def test_quota_029_what_does_not_hold_any_more_is_dropped_with_a_line(
    cluster: Cluster, vision: Tenant
) -> None:
    a_quota(vision, thresholds=("100%",))
    job = spend(cluster, "1010")
    review.review_quotas(moment=builders.at("2026-03-03 10:00"))
    shrink(cluster, job, "500")
    review.review_quotas(moment=builders.at("2026-03-03 14:00"))
    delivery.send_notices(moment=builders.at("2026-03-03 15:00"))
    first, second = Notice.objects.order_by("pk")
    assert (first.state, first.reason[:45]) == (
        NoticeState.SKIPPED,
        "What it says does not hold any more: it is be",
    )
    assert second.subject == "Budget monthly is back under 100%"


def test_quota_059_a_pass_without_news_asks_a_few_questions(
    cluster: Cluster, vision: Tenant, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        a_quota(vision, f"user-{number}", user=f"user-{number}")
    look("2026-03-02")
    with django_assert_max_num_queries(5):
        assert review.review_quotas(moment=builders.at("2026-03-02 00:01")).tenants == 0
    spend(cluster, "10")
    assert QuotaChange.objects.count() == 1
    with django_assert_max_num_queries(30):
        assert review.review_quotas(moment=builders.at("2026-03-02 00:02")).quotas == 30
    assert not QuotaChange.objects.exists()


@pytest.mark.parametrize("what", ["quotas", "jobs"])
def test_quota_059_a_pass_takes_as_many_queries_for_many_quotas_and_jobs_as_for_one(
    cluster: Cluster, vision: Tenant, what: str
) -> None:
    def queries(minute: int) -> int:
        with CaptureQueriesContext(connection) as seen:
            review.review_quotas(moment=builders.at(f"2026-03-02 00:{minute:02}"))
        return len(seen)

    a_quota(vision)
    spend(cluster, "1")
    queries(1)
    spend(cluster, "1")
    few = queries(2)
    for number in range(20):
        if what == "quotas":
            a_quota(vision, f"user-{number}", user=f"user-{number}")
        else:
            spend(cluster, "1")
    spend(cluster, "1")
    assert queries(3) == few


def test_quota_032_the_next_look_comes_before_what_runs_can_reach_a_threshold(
    cluster: Cluster, vision: Tenant
) -> None:
    Connection.objects.create(cluster=cluster, base_url="https://slurm.example")
    a_quota(vision, thresholds=("100%",), amount=Decimal(10))
    fact = builders.a_job(started="2026-03-02 10:00", ended=None, seen_until="2026-03-02 11:00",
                          state="RUNNING", gpus=4)  # fmt: skip
    builders.ingest(cluster, fact, as_of="2026-03-02 11:00")
    look("2026-03-02 11:00")  # 8.00 are used, and 8.00 more an hour
    assert QuotaReview.objects.get().next_at == builders.at("2026-03-02 11:07:30")
    assert isinstance(QuotaReview.objects.get().next_at, datetime)


def test_usage_of_a_tenant_without_quotas_marks_nothing(cluster: Cluster, vision: Tenant) -> None:
    spend(cluster, "10")
    assert not QuotaChange.objects.exists()


@override_settings(CLUSTERTAB_SENDS_MAIL=False)
def test_without_a_mail_server_what_would_be_sent_is_kept(cluster: Cluster, vision: Tenant) -> None:
    a_quota(vision, thresholds=("50%",))
    spend(cluster, "900")
    look("2026-03-03")
    assert Notice.objects.get().state == NoticeState.DRAFTED
