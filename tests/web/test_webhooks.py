"""Ann keeps webhooks on a page of her tenant, Op those of the operators. Case 57 of the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import OperatorRole, User
from portal.core.webhooks.models import Delivery, Webhook, WebhookState
from tests import builders, sharing
from tests.fakes.receiver import Receiver, Reply
from tests.web.house import House, a_house, page, signed_in
from tests.webhooks import Clock, a_clock, a_webhook, an_endpoint, deliver, happens

pytestmark = pytest.mark.django_db

PAGE = "/t/vision-lab/webhooks/"
HOOK = PAGE + "at/hook/"
OPERATORS = "/operator/webhooks/"


begun, house = sharing.fixtures(a_house, "house")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with an_endpoint() as receiver:
        yield receiver


@pytest.fixture
def clock() -> Clock:
    return a_clock()


def acts(browser: Client, path: str, **fields: object) -> str:
    """The page that follows a form."""
    response = browser.post(path, fields, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def shown(text: str) -> str:
    match = re.search(r"whsec_[0-9A-Za-z+/]{43}=", text)
    return match[0] if match else ""


def creates(browser: Client, receiver: Receiver, path: str = PAGE + "change/", **fields: object) -> str:
    values = {"act": "create", "name": "hook", "url": receiver.url()} | fields
    text = acts(browser, path, **values)
    if secret := shown(text):
        receiver.secrets["/hook"] = [secret]
    return text


def test_ann_makes_a_webhook_and_sees_its_secret_once(house: House, receiver: Receiver) -> None:
    ann = signed_in(house.ann)
    assert "No webhooks yet" in page(house.ann, PAGE)
    secret = shown(creates(ann, receiver, event_types=["invoice.paid", "invoice.issued"]))
    assert secret
    again = ann.get(HOOK).content.decode()
    assert shown(again) == ""
    assert "invoice.issued, invoice.paid" in ann.get(PAGE).content.decode()
    assert secret not in "".join(Session.objects.values_list("session_data", flat=True))
    entry = AuditEntry.objects.of_table(Webhook).get()
    assert (entry.who, entry.through) == ("ann@vision.example", f"page {PAGE}change/")


def test_api_057_a_test_is_sent_and_the_page_shows_its_answer(
    house: House, receiver: Receiver, clock: Clock
) -> None:
    ann = signed_in(house.ann)
    creates(ann, receiver)
    text = acts(ann, PAGE + "change/", act="test", webhook="hook")
    assert "A test event is on its way" in text
    assert "Waiting" in text
    receiver.reply = lambda arrival: Reply(500, pieces=(b"<b>broken</b>",))
    clock.passes(seconds=2)
    deliver(clock)
    text = ann.get(HOOK).content.decode()
    assert "webhook.test" in text
    assert "<strong>500</strong>" in text
    assert "&lt;b&gt;broken&lt;/b&gt;" in text
    assert "since" in text
    assert "Failing" in text
    assert receiver.types()[0] == "webhook.test"


def test_api_057_one_delivery_or_all_since_a_day_are_sent_again(
    house: House, receiver: Receiver, clock: Clock
) -> None:
    ann = signed_in(house.ann)
    creates(ann, receiver, event_types=["wallet.low"])
    acts(ann, PAGE + "change/", act="test", webhook="hook")
    clock.passes(seconds=2)
    deliver(clock)
    (delivery,) = Delivery.objects.all()
    text = acts(ann, PAGE + "change/", act="resend", webhook="hook", delivery=delivery.pk)
    assert "It is sent again now." in text
    clock.passes(seconds=2)
    deliver(clock)
    assert [arrival.id for arrival in receiver.arrivals] == [receiver.arrivals[0].id] * 2
    acts(ann, PAGE + "change/", act="save", webhook="hook", url=receiver.url())  # all events now
    since = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    text = acts(ann, PAGE + "change/", act="resend_since", webhook="hook", since=since, which="all")
    assert "events are sent again." in text
    assert Delivery.objects.waiting().exclude(type="webhook.test").exists()
    refused = acts(ann, PAGE + "change/", act="resend_since", webhook="hook", since="soon")
    assert "Choose the day" in refused


def test_ann_rotates_turns_off_and_on_and_deletes(house: House, receiver: Receiver) -> None:
    ann = signed_in(house.ann)
    first = shown(creates(ann, receiver))
    text = acts(ann, PAGE + "change/", act="rotate", webhook="hook")
    assert shown(text) not in {first, ""}
    assert "The previous secret signs until" in text
    assert "hook is turned off." in acts(ann, PAGE + "change/", act="off", webhook="hook")
    off = ann.get(HOOK).content.decode()
    assert "Turn on" in off
    assert "Send test" not in off
    assert "turn it on first" in acts(ann, PAGE + "change/", act="test", webhook="hook")
    assert "hook is active." in acts(ann, PAGE + "change/", act="on", webhook="hook")
    assert "hook is deleted." in acts(ann, PAGE + "change/", act="delete", webhook="hook")
    assert not Webhook.objects.exists()
    assert ann.get(HOOK).status_code == 404


def test_api_056_what_cannot_be_is_said_in_a_sentence(house: House, receiver: Receiver) -> None:
    ann = signed_in(house.ann)
    assert "has no public address" in creates(ann, receiver, url="https://10.0.0.1/")
    assert "Write a name" in creates(ann, receiver, name="My Hook")
    assert "Events:" in creates(ann, receiver, event_types=["cluster.stale"])
    assert "Address:" in creates(ann, receiver, url="")
    assert not Webhook.objects.exists()
    creates(ann, receiver)
    assert "There is a webhook hook already" in creates(ann, receiver)
    assert "has no public address" in acts(
        ann, PAGE + "change/", act="save", webhook="hook", url="https://10.0.0.1/"
    )
    assert Webhook.objects.get().url == receiver.url()


def test_changing_a_webhook_that_is_off_leaves_it_off(house: House, receiver: Receiver) -> None:
    ann = signed_in(house.ann)
    creates(ann, receiver)
    acts(ann, PAGE + "change/", act="off", webhook="hook")
    acts(ann, PAGE + "change/", act="save", webhook="hook", url=receiver.url("/other"))
    assert Webhook.objects.get().state == WebhookState.OFF
    assert Webhook.objects.get().url == receiver.url("/other")


def test_nobody_but_owners_opens_them(house: House, receiver: Receiver) -> None:
    creates(signed_in(house.ann), receiver)
    for person in (house.ben, house.carla, house.eve, house.op):
        browser = signed_in(person)
        assert browser.get(PAGE).status_code == 404
        assert browser.get(HOOK).status_code == 404
        assert browser.post(PAGE + "change/", {"act": "delete", "webhook": "hook"}).status_code == 404
    eve = signed_in(house.eve)
    theirs = eve.post("/t/speech-lab/webhooks/change/", {"act": "delete", "webhook": "hook"})
    assert theirs.status_code == 404
    assert Webhook.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [{"act": "resend", "delivery": "x"}, {"act": "resend", "delivery": "9" * 40}, {"act": "explode"}],
)
def test_what_no_page_sends_is_not_there(house: House, receiver: Receiver, fields: dict[str, str]) -> None:
    ann = signed_in(house.ann)
    creates(ann, receiver)
    assert ann.post(PAGE + "change/", fields | {"webhook": "hook"}).status_code == 404


def test_admins_keep_the_operators_webhooks_and_others_look_at_them(house: House, receiver: Receiver) -> None:
    op = signed_in(house.op)
    assert shown(creates(op, receiver, OPERATORS, event_types=["cluster.stale"]))
    support = User.objects.create_user(
        "support@cluster.example", builders.PASSWORD, operator_role=OperatorRole.SUPPORT
    )
    text = page(support, OPERATORS + "hook/")
    assert "Send test" not in text
    assert "cluster.stale" in page(support, OPERATORS)
    refused = acts(signed_in(support), OPERATORS, act="delete", webhook="hook")
    assert "Your role does not allow this." in refused
    assert "hook is deleted." in acts(op, OPERATORS, act="delete", webhook="hook")


def test_deliveries_are_shown_by_state_and_page(house: House, receiver: Receiver, clock: Clock) -> None:
    a_webhook(receiver, house.vision, maker=house.ann)
    happens(house.vision, *range(60))
    deliver(clock)
    first = page(house.ann, HOOK + "?state=delivered")
    assert first.count("<strong>204</strong>") == 50
    older = re.search(r'href="([^"]*before=[^"]*)"', first)
    assert older is not None
    second = page(house.ann, older[1].replace("&amp;", "&"))
    assert second.count("<strong>204</strong>") == Delivery.objects.count() - 50
    assert "No delivery is in this state." in page(house.ann, HOOK + "?state=failed")
