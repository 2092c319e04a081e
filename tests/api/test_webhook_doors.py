"""What the page of webhooks does and refuses, the command and the API do and refuse. Case 42 of the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import User
from portal.core.webhooks import endpoints
from portal.core.webhooks.models import Webhook
from portal.core.webhooks.signing import MARK
from tests.api.door import Door
from tests.fakes.receiver import Receiver
from tests.web.house import House, signed_in
from tests.webhooks import an_endpoint

pytestmark = pytest.mark.django_db

PAGE = "/t/vision-lab/webhooks/"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with an_endpoint() as receiver:
        yield receiver


@dataclass(frozen=True)
class Webhooks:
    """A webhook as a script, a shell and a person would make it; "" of the address is the receiver's."""

    sentence: str = ""
    name: str = "hook"
    url: str = ""
    types: tuple[str, ...] = ()
    others: tuple[str, ...] = field(default=())  # that there are already


REFUSED = {
    "a name in capitals": Webhooks("Write a name of 1 to 60 lower-case letters", name="Hook"),
    "a password in the address": Webhooks("Leave user and password out", url="https://ann:x@hooks.example/"),
    "an address of another protocol": Webhooks("Write one such as https://", url="ftp://hooks.example/"),
    "an inner address": Webhooks("has no public address", url="https://10.0.0.1/"),
    "one too many": Webhooks("There are 1 webhooks already", others=("first",)),
}


def by_command(one: Webhooks, url: str, *more: str) -> None:
    types = [word for each in one.types for word in ("--type", each)]
    call_command(
        "set_webhook", one.name, "--tenant", "vision-lab", "--url", url, *types,
        "--maker", "ann@vision.example", *more,
    )  # fmt: skip


def by_api(ann: Door, one: Webhooks, url: str) -> Any:
    return ann.send("PUT", f"/webhooks/{one.name}", {"url": url, "event_types": [*one.types]})


def by_page(ann: User, one: Webhooks, url: str) -> str:
    entered = {"act": "create", "name": one.name, "url": url, "event_types": [*one.types]}
    response = signed_in(ann).post(PAGE + "change/", entered, follow=True)
    assert response.status_code == 200
    return unescape(response.content.decode())


@pytest.mark.parametrize("case", REFUSED)
def test_api_042_a_webhook_is_refused_by_page_command_and_api_in_the_same_words(
    house: House, ann: Door, receiver: Receiver, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = REFUSED[case]
    url = one.url or receiver.url()
    for name in one.others:
        by_command(Webhooks(name=name), receiver.url())
        monkeypatch.setattr(endpoints, "MOST", len(one.others))
    with pytest.raises(CommandError) as refusal:
        by_command(one, url)
    said = str(refusal.value)
    assert one.sentence in said
    answer = by_api(ann, one, url)
    assert answer.status in {400, 409}
    assert answer.body["detail"] == said
    assert said in by_page(house.ann, one, url)
    assert sorted(Webhook.objects.values_list("name", flat=True)) == sorted(one.others)


def test_api_042_a_webhook_is_the_same_by_whichever_door_it_is_made(
    house: House, ann: Door, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    types = ("invoice.paid", "wallet.low")
    by_command(Webhooks(name="shell", types=types), receiver.url(), "--json")
    printed = json.loads(capsys.readouterr().out)
    made = by_api(ann, Webhooks(name="script", types=types), receiver.url()).body
    by_page(house.ann, Webhooks(name="person", types=types), receiver.url())
    rows = {row["name"]: row for row in ann.reads("/webhooks")["data"]}
    own = {"id", "name", "created_at"}
    alike = [{key: value for key, value in row.items() if key not in own} for row in rows.values()]
    assert {*rows} == {"shell", "script", "person"}
    assert alike[0] == alike[1] == alike[2]
    assert {*printed} <= {*made}  # by the same names
    assert {key: printed[key] for key in printed if key != "secret"} == {
        key: rows["shell"][key] for key in printed if key != "secret"
    }
    assert printed["secret"].startswith(MARK)


def test_api_042_the_command_replaces_turns_off_and_deletes_what_the_api_made(
    house: House, ann: Door, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    by_api(ann, Webhooks(), receiver.url())
    call_command(
        "set_webhook", "hook", "--tenant", "vision-lab", "--url", receiver.url("/new"), "--off", "--why", "moved",
        "--json",
    )  # fmt: skip
    printed = json.loads(capsys.readouterr().out)
    assert (printed["active"], printed["state"], printed["secret"]) == (False, "off", None)
    shown = ann.reads("/webhooks/hook")
    assert (shown["url"], shown["state"], shown["maker"]) == (receiver.url("/new"), "off", house.ann.email)
    entry = AuditEntry.objects.of_table(Webhook).latest("pk")
    assert (entry.why, "set_webhook" in entry.through) == ("moved", True)
    call_command("set_webhook", "hook", "--tenant", "vision-lab", "--delete")
    assert ann.get("/webhooks/hook").status == 404
    with pytest.raises(CommandError, match="vision-lab has no webhook 'hook'"):
        call_command("set_webhook", "hook", "--tenant", "vision-lab", "--delete")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--url", "https://hooks.example/"), "It is new: say with --maker"),
        (("--maker", "ann@vision.example"), "Say with --url where events go"),
        (
            ("--url", "https://hooks.example/", "--maker", "ben@vision.example"),
            "is not an owner of vision-lab",
        ),
        (
            ("--url", "https://hooks.example/", "--maker", "eve@speech.example"),
            "is not an owner of vision-lab",
        ),
        (("--url", "https://hooks.example/", "--maker", "zoe@vision.example"), "There is no user"),
    ],
)
def test_whom_the_page_would_not_let_in_makes_no_webhook_by_the_command(
    house: House, words: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("set_webhook", "hook", "--tenant", "vision-lab", *words)
    with pytest.raises(CommandError, match="is not an operator with the role admin"):
        call_command(
            "set_webhook", "hook", "--url", "https://hooks.example/", "--maker", "ann@vision.example"
        )
