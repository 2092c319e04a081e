"""Digests and quiet hours: each person is mailed when they want it, and nothing else waits for that."""

from __future__ import annotations

import re
import smtplib
import threading
from datetime import time
from typing import Any

import pytest
from django.core import mail
from django.db import connection

from billing.emails import claims, delivery
from billing.models import (
    Notice,
    NoticeDelivery,
    NoticeKind,
    NoticePreference,
    NoticeState,
    OperatorDelivery,
    QuotaAction,
    QuotaBlock,
)
from billing.notifications import subscriptions
from billing.notifications.hours import Hours, NotificationError, read_hours
from billing.notifications.preferences import set_preference
from billing.quotas import review
from clusters.models import Cluster
from portal.core.tenants.models import Membership, Role, Tenant, User
from tests import builders
from tests.quota_stories import a_quota, a_vision, look, shrink, spend, subjects, told_events

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("mailed")]

NIGHT = Hours(quiet_from=time(22), quiet_until=time(7), timezone="Europe/Berlin")
AT_EIGHT = Hours(digest_at=time(8), timezone="Europe/Berlin")


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster()


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return a_vision(cluster, carla=Role.BILLING)


def prefers(email: str, hours: Hours, moment: str = "2026-03-01", **timings: str) -> NoticePreference:
    member = Membership.objects.select_related("tenant", "user").get(user__email=email)
    return set_preference(membership=member, timings=timings, hours=hours, moment=builders.at(moment))


def subscribes(user: User, *topics: str, tenants: tuple[str, ...] = (), digest: bool = True) -> None:
    subscriptions.set_subscription(
        user=user, topics=topics, tenants=tenants, digest=digest, hours=AT_EIGHT,
        moment=builders.at("2026-03-01"),
    )  # fmt: skip


def posted() -> list[tuple[list[str], str]]:
    """To whom, and what; emptied."""
    sent = [(message.to, str(message.subject)) for message in mail.outbox]
    mail.outbox.clear()
    return sent


def test_quota_030_a_digest_is_one_mail_a_day_of_what_still_holds(cluster: Cluster, vision: Tenant) -> None:
    prefers("ann@vision.example", AT_EIGHT, budgets="digest")
    a_quota(vision, thresholds=("50%", "80%", "100%"))
    a_quota(vision, "bens", user="ben", thresholds=("50%",))
    spend(cluster, "510", "2026-03-02")
    look("2026-03-02 10:00")
    assert posted() == [(["carla@vision.example"], "2 budgets of Vision: what has changed")]  # at once
    job = spend(cluster, "500", "2026-03-03")
    look("2026-03-02 15:00")
    shrink(cluster, job, "350", "2026-03-03")  # 860 are used: below 100 % again
    look("2026-03-02 18:00")
    assert [to for to, _ in posted()] == [["carla@vision.example"]] * 2
    look("2026-03-03 06:59")
    assert posted() == []
    look("2026-03-03 07:00")  # 08:00 in Berlin
    (message,) = mail.outbox
    assert message.to == ["ann@vision.example"]
    assert "monthly (everything): $860.00 of $1,000.00; reached 50%, 80%" in message.body
    assert "bens (user ben): $860.00 of $1,000.00; reached 50%" in message.body
    assert "https://portal.example/t/vision/notifications/" in message.body
    assert "100%" not in message.body  # reached and left again since: Ann never heard of it
    line = NoticeDelivery.objects.get(state=NoticeState.SKIPPED)
    assert line.reason.startswith("What it says does not hold any more")
    posted()
    look("2026-03-03 07:05")
    look("2026-03-04 07:00")
    assert posted() == []


def test_quota_030_quiet_hours_hold_a_mail_and_nothing_else(cluster: Cluster, vision: Tenant) -> None:
    prefers("ann@vision.example", NIGHT)
    prefers("carla@vision.example", Hours(), budgets="never")
    a_quota(vision, thresholds=("100%",), action=QuotaAction.NO_GPU_JOBS)
    spend(cluster, "1010", "2026-03-02")
    look("2026-03-02 23:00")  # midnight in Berlin
    assert posted() == []
    assert told_events() == [
        "used 100%"
    ]  # webhooks are posted from these, and the block is demanded, at once
    assert QuotaBlock.objects.count() == 1
    assert (
        Notice.objects.get().reason == "Everybody it goes to gets it later, or has turned such e-mails off."
    )
    look("2026-03-03 05:59")
    assert posted() == []
    look("2026-03-03 06:00")
    assert posted() == [(["ann@vision.example"], "Budget monthly: 100% is used")]


def test_quota_030_what_does_not_hold_in_the_morning_is_dropped_with_a_line(
    cluster: Cluster, vision: Tenant
) -> None:
    for email in ("ann@vision.example", "carla@vision.example"):
        prefers(email, NIGHT)
    a_quota(vision, thresholds=("100%",))
    job = spend(cluster, "1010", "2026-03-02")
    look("2026-03-02 23:00")
    shrink(cluster, job, "500")
    look("2026-03-03 02:00")
    look("2026-03-03 06:00")
    assert posted() == []
    reasons = set(NoticeDelivery.objects.values_list("state", "reason"))
    assert [(state, reason[:40]) for state, reason in reasons] == [
        (NoticeState.SKIPPED, "What it says does not hold any more: it ")
    ]


def test_quota_030_the_warning_before_jobs_are_ended_waits_for_nobody(vision: Tenant) -> None:
    op = builders.an_operator()
    subscribes(op, "endings", "budgets")
    prefers("ann@vision.example", NIGHT, budgets="never")
    moment = builders.at("2026-03-02 23:00")
    details = {
        "stage": "done", "name": "monthly", "scope": "everything", "accounts": ["vision"], "jobs": [17],
        "rows": [], "due_at": moment.isoformat(), "members": [],
    }  # fmt: skip
    Notice.objects.create(
        tenant=vision,
        kind=NoticeKind.QUOTA_ENDING,
        key="e",
        created_at=moment,
        not_before=moment,
        details=details,
    )
    delivery.send_notices(moment=moment)
    subject = "Budget monthly: 1 running job was ended"
    assert posted() == [
        (["ann@vision.example", "carla@vision.example"], subject),
        ([op.email], f"Vision: {subject}"),
    ]


def test_quota_028_operators_subscribe_to_kinds_of_all_or_of_some_tenants(
    cluster: Cluster, vision: Tenant
) -> None:
    speech = builders.a_tenant("speech", plan=builders.a_plan("other"), accounts=[(cluster, "speech")])
    builders.a_person("eve@speech.example", speech, Role.OWNER)
    everything, one, sue = (builders.an_operator(f"{name}@op.example") for name in ("all", "one", "sue"))
    subscribes(everything, "budgets")
    subscribes(one, "budgets", tenants=("speech",), digest=False)
    subscribes(sue, "budgets", digest=False)
    prefers("eve@speech.example", Hours(), budgets="never")  # what a tenant's people chose is theirs
    a_quota(vision, thresholds=("50%",))
    a_quota(speech, thresholds=("50%",))
    spend(cluster, "600")
    spend(cluster, "700", account="speech")
    review.review_quotas(moment=builders.at("2026-03-02 10:00"))
    User.objects.filter(pk=sue.pk).update(operator_role="", is_staff=False, is_superuser=False)
    delivery.send_notices(moment=builders.at("2026-03-02 10:00"))
    subject = "Budget monthly: 50% is used"
    assert posted() == [
        (["ann@vision.example", "carla@vision.example"], subject),
        (["one@op.example"], f"Speech: {subject}"),
    ]
    look("2026-03-03 07:00")
    (message,) = mail.outbox
    assert (message.to, message.subject) == (["all@op.example"], "Daily digest: 2 notices of 2 tenants")
    assert (
        f"Speech: {subject}\nvision: {subject}" in message.body
        or f"Vision: {subject}\nSpeech: {subject}" in message.body
    )
    assert set(OperatorDelivery.objects.filter(user=sue).values_list("state", flat=True)) <= {"skipped"}


def test_quota_028_a_notice_that_cannot_be_looked_at_stops_no_digest(
    cluster: Cluster, vision: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribes(builders.an_operator("all@op.example"), "budgets")
    a_quota(vision, thresholds=("50%",))
    a_quota(vision, "odd", thresholds=("80%",))
    spend(cluster, "600")
    look("2026-03-02 10:00")
    spend(cluster, "300")
    look("2026-03-02 11:00")
    mail.outbox.clear()
    odd, skip_reason = Notice.objects.latest("pk"), claims.skip_reason

    def fails(notice: Notice, moment: Any) -> str:
        if notice == odd:
            raise KeyError("quotas")
        return skip_reason(notice, moment)

    monkeypatch.setattr(claims, "skip_reason", fails)
    delivery.send_notices(moment=builders.at("2026-03-03 07:00"))
    assert posted() == [(["all@op.example"], "Daily digest: 2 notices of 1 tenant")]


def test_quota_028_who_was_removed_while_a_mail_was_held_is_told_nothing(
    cluster: Cluster, vision: Tenant
) -> None:
    prefers("ann@vision.example", NIGHT)
    a_quota(vision, thresholds=("50%",))
    spend(cluster, "600")
    look("2026-03-02 23:00")
    posted()
    Membership.objects.filter(user__email="ann@vision.example").delete()
    look("2026-03-03 06:00")
    assert posted() == []
    assert NoticeDelivery.objects.get().reason.startswith("It is no longer for this person")


def test_what_is_chosen_anew_holds_for_what_waits_already(cluster: Cluster, vision: Tenant) -> None:
    prefers("ann@vision.example", AT_EIGHT, budgets="digest")
    prefers("carla@vision.example", AT_EIGHT, budgets="digest")
    a_quota(vision, thresholds=("50%",))
    spend(cluster, "600")
    look("2026-03-02 10:00")
    assert posted() == []
    prefers("ann@vision.example", Hours(), "2026-03-02 10:00", budgets="at-once")
    prefers("carla@vision.example", Hours(), "2026-03-02 10:00", budgets="never")
    look("2026-03-02 10:01")
    assert posted() == [(["ann@vision.example"], "Budget monthly: 50% is used")]
    assert NoticeDelivery.objects.get(state="skipped").reason == "You have turned such e-mails off."
    assert subjects() == []


def test_a_mail_server_that_refuses_is_asked_again_and_nothing_is_sent_twice(
    cluster: Cluster, vision: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefers("ann@vision.example", NIGHT)
    prefers("carla@vision.example", Hours(), budgets="never")
    a_quota(vision, thresholds=("50%",))
    spend(cluster, "600")
    look("2026-03-02 23:00")

    def refuse(*_: object, **__: object) -> None:
        raise smtplib.SMTPRecipientsRefused({"ann@vision.example": (450, b"later")})

    with monkeypatch.context() as patched:
        patched.setattr("django.core.mail.backends.locmem.EmailBackend.send_messages", refuse)
        look("2026-03-03 06:00")
    row = NoticeDelivery.objects.get()
    assert (row.state, row.tries, row.refused) == ("waiting", 1, {"ann@vision.example": "450 later"})
    look("2026-03-03 06:05")
    look("2026-03-03 06:10")
    assert posted() == [(["ann@vision.example"], "Budget monthly: 50% is used")]


def test_hours_that_cannot_be_are_refused(vision: Tenant) -> None:
    def choose(digest_at: str, since: str, until: str, zone: str) -> None:
        hours = read_hours(digest_at=digest_at, quiet_from=since, quiet_until=until, timezone=zone)
        prefers("ann@vision.example", hours, budgets="digest")

    for texts, sentence in (
        (("25:00", "", "", ""), "'25:00' is no time of day"),
        (("08:00", "22:00", "", ""), "fill in both, or neither"),
        (("08:00", "22:00", "22:00", ""), "begin and end at 22:00"),
        (("08:00", "", "", "Mars/Base"), "'Mars/Base' is no time zone"),
        (("06:00", "22:00", "07:00", ""), "lies in your quiet hours, 22:00 to 07:00"),
    ):
        with pytest.raises(NotificationError, match=re.escape(sentence)):
            choose(*texts)
    assert not NoticePreference.objects.exists()


def test_every_kind_of_notice_is_one_that_operators_can_subscribe_to() -> None:
    assert set(subscriptions.TOPIC_OF) == set(NoticeKind)


def test_quota_030_four_workers_at_once_send_one_digest(cluster: Cluster, vision: Tenant) -> None:
    prefers("ann@vision.example", AT_EIGHT, budgets="digest")
    prefers("carla@vision.example", Hours(), budgets="never")
    for name in ("one", "two"):
        a_quota(vision, name, thresholds=("50%", "80%"))
    spend(cluster, "600", "2026-03-02")
    look("2026-03-02 10:00")
    spend(cluster, "300", "2026-03-03")
    look("2026-03-02 12:00")
    barrier = threading.Barrier(4)

    def send_() -> None:
        try:
            barrier.wait()
            delivery.send_notices(moment=builders.at("2026-03-03 07:00"))
        finally:
            connection.close()

    threads = [threading.Thread(target=send_) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert posted() == [(["ann@vision.example"], "2 budgets of Vision: what has changed")]
    sent = NoticeDelivery.objects.order_by("pk")
    assert [(row.state, bool(row.text)) for row in sent] == [("sent", True), ("sent", False)]
