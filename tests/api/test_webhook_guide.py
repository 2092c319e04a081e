"""What docs/how-to/webhooks.md prints works as it is printed. Cases 15 and 51 of the API."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from portal.core.webhooks.models import Webhook, WebhookState
from portal.env import ROOT
from tests.api.door import Answer, Door
from tests.api.test_provisioning_guide import send
from tests.fakes.receiver import Arrival, Receiver, Reply
from tests.web.house import House
from tests.webhooks import a_clock, a_webhook, an_endpoint, deliver, happens

pytestmark = pytest.mark.django_db

GUIDE = (ROOT / "docs" / "how-to" / "webhooks.md").read_text()
VERIFIERS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with an_endpoint() as receiver:
        yield receiver


@pytest.fixture
def arrival(house: House, receiver: Receiver) -> Arrival:
    a_webhook(receiver, house.vision, maker=house.ann)
    happens(house.vision, 7)
    deliver(a_clock())
    return receiver.arrivals[-1]


def verifier(code: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return namespace["verify"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("code", VERIFIERS)
def test_api_051_the_printed_verifiers_take_what_is_sent_and_nothing_else(
    receiver: Receiver, arrival: Arrival, code: str
) -> None:
    verify = verifier(code)
    (secret,) = receiver.secrets["/hook"]
    assert verify(secret, arrival.headers, arrival.raw) == arrival.body
    other = "whsec_" + "A" * 43 + "="
    old = arrival.headers | {"webhook-timestamp": str(arrival.timestamp - 301)}
    for refused in (
        (other, arrival.headers, arrival.raw),
        (secret, arrival.headers, arrival.raw + b" "),
        (secret, arrival.headers | {"webhook-id": "evt_0000000000000"}, arrival.raw),
        (secret, old, arrival.raw),
    ):
        with pytest.raises(Exception, match=r"too old|not valid|No matching|too old"):
            verify(*refused)
    two = arrival.headers | {"webhook-signature": "v1,AAAA " + arrival.headers["webhook-signature"]}
    assert verify(secret, two, arrival.raw) == arrival.body


def test_there_are_two_printed_verifiers() -> None:
    assert len(VERIFIERS) == 2


def requests() -> list[list[str]]:
    blocks = re.findall(r"```\n(curl .*?)```", GUIDE, re.DOTALL)
    commands = re.split(r"\n(?=curl )", "\n".join(blocks).replace("\\\n", " "))
    return [shlex.split(command) for command in commands]


def test_api_015_the_printed_requests_make_try_turn_on_and_rotate_a_webhook(
    house: House, ann: Door, receiver: Receiver
) -> None:
    clock = a_clock()
    answers: list[Answer] = []
    for words in requests():
        local = [word.replace("https://hooks.example.org/clustertab", receiver.url()) for word in words]
        if answers:
            receiver.secrets["/hook"] = [answers[0].body["secret"]]
            deliver(clock)
        if "PATCH" in words:  # the endpoint was away meanwhile
            receiver.reply = lambda arrival: Reply(410)
            happens(house.vision, 1)
            deliver(clock)
            assert Webhook.objects.get().state == WebhookState.GONE
            receiver.reply = lambda arrival: Reply()
        answers.append(send(ann, local))
    assert [answer.status for answer in answers] == [200, 201, 200, 200, 201, 201]
    tried = answers[2].body["data"]
    assert [(row["type"], row["state"]) for row in tried if row["type"] == "webhook.test"]
    assert answers[3].body["active"] is True
    assert answers[5].body["secret"].startswith("whsec_")
