"""The pages Notifications: what each person is mailed and when, with a preview of what waits for them."""

from __future__ import annotations

import re
from datetime import date, time
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from billing.models import (
    OPERATOR_TOPICS,
    NoticeDelivery,
    NoticePreference,
    OperatorDelivery,
    OperatorSubscription,
    QuotaEvery,
)
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Membership, OperatorRole
from portal.core.tenants.scope import acting_scope
from tests import builders
from tests.quota_stories import a_quota, look
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)

PAGE, CHANGE, OPERATORS = (
    "/t/vision-lab/notifications/",
    "/t/vision-lab/notifications/change/",
    "/operator/notifications/",
)
BERLIN = {"digest_at": "08:00", "quiet_from": "22:00", "quiet_until": "07:00", "timezone": "Europe/Berlin"}


@pytest.fixture
def house() -> House:
    return a_house(close=False)


def half_is_used(house: House) -> None:
    """Of a budget of the vision lab's, which may wait: on 20 April at ten."""
    term: dict[str, Any] = {
        "every": QuotaEvery.TERM,
        "first_day": date(2026, 3, 1),
        "end_day": date(2036, 1, 1),
    }
    a_quota(house.vision, "grant", thresholds=("50%",), amount=Decimal(50), **term)
    builders.ingest(house.cluster, builders.a_job(job_id="20", gpus=8), as_of="2026-04-20")
    look("2026-04-20 10:00")


def saves(house: House, path: str = CHANGE, **fields: str) -> str:
    person = house.ann if path == CHANGE else house.op
    answer = signed_in(person).post(path, {**BERLIN, **fields}, follow=True)
    return words(answer.content.decode())


def test_ann_chooses_a_digest_and_sees_what_the_next_one_would_say(house: House) -> None:
    shown = words(page(house.ann, PAGE))
    assert "Nothing waits. The next digest would be sent" in shown
    assert (
        "Before jobs are ended Time runs out: raise the budget, or save your work. Never held back Yes"
        in shown
    )
    assert 'href="/t/vision-lab/notifications/"' in page(house.ann, "/t/vision-lab/team/")  # a tab
    assert "Saved." in saves(house, budgets="digest", receipts="never")
    half_is_used(house)
    assert NoticeDelivery.objects.get().user == house.ann
    html = page(house.ann, PAGE)
    assert "Daily digest, 21 Apr 2026, 08:00 Budget grant: 50% is used" in words(html)
    assert re.search(r'value="digest" selected', html)
    assert NoticeDelivery.objects.get().state == "waiting"  # looking changes nothing
    assert "Daily digest, " not in page(house.carla, PAGE)  # what waits for Ann is hers
    changes = AuditEntry.objects.filter(table="billing_noticepreference")
    assert [entry.who for entry in changes] == [house.ann.email]


def test_bad_hours_are_told_and_what_was_typed_stays(house: House) -> None:
    shown = (
        signed_in(house.ann)
        .post(CHANGE, {**BERLIN, "budgets": "digest", "digest_at": "06:30"}, follow=True)
        .content.decode()
    )
    assert "The digest at 06:30 lies in your quiet hours, 22:00 to 07:00" in words(shown)
    assert 'name="digest_at" type="time" value="06:30"' in shown
    assert "is no time zone" in saves(house, timezone="<b>Mars</b>\0")
    assert "is not one of at-once, digest and never" in saves(house, budgets="<i>")
    assert not NoticePreference.objects.exists()


def test_strangers_and_operators_have_no_e_mails_of_the_tenant(house: House) -> None:
    assert signed_in(house.eve).get(PAGE).status_code == 404
    assert signed_in(house.eve).post(CHANGE, BERLIN).status_code == 404
    assert "You are not a member here" in page(house.op, PAGE)
    assert signed_in(house.op).post(CHANGE, BERLIN).status_code == 404
    assert signed_in(house.ann).get(OPERATORS).status_code == 404
    saves(house, budgets="never")
    signed_in(house.op).post("/operator/tenants/vision-lab/look/", {"why": "a ticket", "reason": "a ticket"})
    assert "Notifications" in page(house.op, PAGE)
    with acting_scope(house.speech):
        assert not NoticePreference.objects.exists()


def test_op_subscribes_and_sees_the_next_digest(house: House) -> None:
    sue = builders.a_person("sue@portal.example")
    sue.operator_role = OperatorRole.SUPPORT
    sue.save()
    assert "Nothing waits" in words(page(sue, OPERATORS))
    assert "There is no tenant nobody" in saves(house, OPERATORS, topic="budgets", tenants="nobody")
    refused = signed_in(house.op).get(OPERATORS).content.decode()
    assert 'value="budgets" checked' not in refused  # what was typed is shown once
    assert "Saved." in saves(
        house, OPERATORS, topic="budgets", tenants="vision-lab, speech-lab", when="digest"
    )
    row = OperatorSubscription.objects.get()
    assert (row.user, row.topics, row.tenants, row.digest) == (
        house.op, ["budgets"], ["vision-lab", "speech-lab"], True
    )  # fmt: skip
    Membership.objects.filter(
        tenant=house.vision
    ).delete()  # with nobody to write to, Op is told all the same
    half_is_used(house)
    assert OperatorDelivery.objects.get().user == house.op
    shown = words(page(house.op, OPERATORS))
    assert "Daily digest, 21 Apr 2026, 08:00 Vision Lab: Budget grant: 50% is used" in shown
    assert "Saved. You are mailed no notices of tenants." in saves(house, OPERATORS)
    assert OperatorDelivery.objects.get().reason == "You have unsubscribed since."
    assert "You have unsubscribed since." in words(page(house.op, OPERATORS))


def test_a_form_without_hours_has_the_usual_ones(house: House) -> None:
    assert signed_in(house.ben).post(CHANGE, {}).status_code == 302  # every member may
    assert NoticePreference.objects.get().digest_at == time(8)


def test_the_command_subscribes_as_the_page_does(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    call_command(
        "set_subscription",
        house.op.email,
        "--topic",
        "all",
        "--tenant",
        "vision-lab",
        "--zone",
        "Europe/Berlin",
    )
    assert "of vision-lab, in a digest at 08:00." in capsys.readouterr().out
    row = OperatorSubscription.objects.get()
    assert (row.user, tuple(row.topics), row.timezone) == (house.op, OPERATOR_TOPICS, "Europe/Berlin")
    for person, refusal in ((house.ann.email, "is no operator"), ("nobody@x.example", "Nobody here has")):
        with pytest.raises(CommandError, match=refusal):
            call_command("set_subscription", person, "--topic", "budgets")
    with pytest.raises(CommandError, match="lies in your quiet hours"):
        call_command("set_subscription", house.op.email, "--quiet-from", "07:00", "--quiet-until", "09:00")
    call_command("set_subscription", house.op.email)
    assert "is mailed no notices of tenants" in capsys.readouterr().out
