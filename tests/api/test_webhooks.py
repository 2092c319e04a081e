"""Ann's Terraform keeps webhooks, and reads what was sent to them. Cases 11, 19, 28, 31, 33, 56 and 57 of the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from portal.core.audit.models import AuditEntry
from portal.core.webhooks.models import Delivery, Webhook
from tests.api.door import Door, door
from tests.fakes.receiver import Receiver, Reply
from tests.web.house import House
from tests.webhooks import a_clock, an_endpoint, deliver, happens

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with an_endpoint() as receiver:
        yield receiver


def put(client: Door, receiver: Receiver, name: str = "hook", **fields: Any) -> Any:
    answer = client.send("PUT", f"/webhooks/{name}", {"url": receiver.url(f"/{name}")} | fields)
    assert answer.status == 200, answer.raw
    if answer.body["secret"]:
        receiver.secrets[f"/{name}"] = [answer.body["secret"]]
    return answer.body


def test_api_031_put_makes_a_webhook_and_again_changes_nothing(ann: Door, receiver: Receiver) -> None:
    new = put(ann, receiver, event_types=["invoice.paid"])
    assert new["secret"].startswith("whsec_")
    entries = AuditEntry.objects.count()
    again = put(ann, receiver, event_types=["invoice.paid"])
    assert again == new | {"secret": None}
    assert AuditEntry.objects.count() == entries
    assert ann.reads("/webhooks/hook") == {name: new[name] for name in new if name != "secret"}
    assert ann.reads("/webhooks")["data"] == [ann.reads("/webhooks/hook")]


def test_api_031_put_replaces_and_patch_changes_what_is_given(ann: Door, receiver: Receiver) -> None:
    put(ann, receiver, event_types=["invoice.paid"], active=False)
    replaced = put(ann, receiver)
    assert (replaced["event_types"], replaced["active"], replaced["secret"]) == ([], True, None)
    changed = ann.send("PATCH", "/webhooks/hook", {"event_types": ["wallet.low", "invoice.paid"]}).body
    assert changed["event_types"] == ["invoice.paid", "wallet.low"]
    assert changed["url"] == receiver.url("/hook")
    off = ann.send("PATCH", "/webhooks/hook", {"active": False}).body
    assert (off["active"], off["state"], off["event_types"]) == (False, "off", changed["event_types"])
    moved = ann.send("PATCH", "/webhooks/hook", {"url": receiver.url("/other")}).body
    assert (moved["url"], moved["active"]) == (receiver.url("/other"), False)


def test_api_031_deleted_twice_is_204_then_404(ann: Door, receiver: Receiver) -> None:
    put(ann, receiver)
    ann.writes("/webhooks/hook/tests")
    assert [ann.send("DELETE", "/webhooks/hook").status for _ in range(2)] == [204, 404]
    assert not Delivery.objects.exists()


def test_api_011_a_change_of_a_state_that_is_gone_is_refused(ann: Door, receiver: Receiver) -> None:
    put(ann, receiver)
    tag = ann.get("/webhooks/hook").headers["ETag"]
    body = {"url": receiver.url("/hook"), "event_types": ["invoice.paid"]}
    assert ann.send("PUT", "/webhooks/hook", body, **{"If-Match": tag}).status == 200
    for method in ("PUT", "PATCH", "DELETE"):
        sent = None if method == "DELETE" else {"url": receiver.url("/lost")}
        stale = ann.send(method, "/webhooks/hook", sent, **{"If-Match": tag})
        assert stale.problem == (412, "changed-meanwhile")
    assert ann.reads("/webhooks/hook")["event_types"] == ["invoice.paid"]
    new = ann.send("PUT", "/webhooks/another", body, **{"If-Match": tag})
    assert new.problem == (412, "changed-meanwhile")


def test_api_033_a_preview_makes_no_webhook(ann: Door, receiver: Receiver) -> None:
    answer = ann.send("PUT", "/webhooks/hook?dry_run=true", {"url": receiver.url()})
    assert (answer.status, answer.body["name"]) == (200, "hook")
    assert not Webhook.objects.exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://127.0.0.1/", "has no public address"), ("https://10.0.0.1/", "has no public address"),
        ("https://[::ffff:169.254.169.254]/", "has no public address"),
        ("http://93.184.216.34/", "begins with https://"), ("https://a:b@93.184.216.34/", "Leave user"),
        ("not an address", "is no address"),
    ],
)  # fmt: skip
def test_api_056_an_inner_address_is_refused_at_the_field(ann: Door, url: str, said: str) -> None:
    for method in ("PUT", "PATCH"):
        refused = ann.send(method, "/webhooks/hook", {"url": url})
        assert refused.problem == (400, "invalid-request")
        assert refused.body["errors"][0]["pointer"] == "/url"
        assert said in refused.body["errors"][0]["detail"]


def test_api_056_a_public_address_is_taken_without_any_setting(ann: Door) -> None:
    assert ann.send("PUT", "/webhooks/hook", {"url": "https://93.184.216.34/hook"}).status == 200


@pytest.mark.parametrize(
    ("name", "fields", "status"),
    [
        ("Hook", {}, 400), ("-hook", {}, 400), ("hook_1", {}, 400), ("h" * 61, {}, 400), ("h" * 60, {}, 200),
        ("1", {}, 200), ("hook", {"event_types": ["invoice.vanished"]}, 400), ("hook", {"event_types": "all"}, 400),
        ("hook", {"event_types": ["cluster.stale"]}, 400), ("hook", {"active": "perhaps"}, 400),
        ("hook", {"url": None}, 400), ("hook", {"secret": "whsec_mine"}, 400),
        ("hook", {"event_types": ["invoice.paid"] * 2}, 200),
    ],
)  # fmt: skip
def test_api_031_what_cannot_be_is_refused(
    ann: Door, receiver: Receiver, name: str, fields: dict[str, Any], status: int
) -> None:
    answer = ann.send("PUT", f"/webhooks/{name}", {"url": receiver.url()} | fields)
    assert answer.status == status, answer.raw


def test_api_031_there_are_twenty_at_most(ann: Door, receiver: Receiver) -> None:
    for number in range(20):
        put(ann, receiver, f"hook-{number}")
    refused = ann.send("PUT", "/webhooks/one-more", {"url": receiver.url()})
    assert refused.problem == (409, "refused")
    assert "20 webhooks already" in refused.body["detail"]
    put(ann, receiver, "hook-1", active=False)  # those that are there can still be changed


def test_api_031_without_keys_for_secrets_none_is_made(ann: Door, receiver: Receiver) -> None:
    with override_settings(CLUSTERTAB_SECRET_KEYS=[]):
        refused = ann.send("PUT", "/webhooks/hook", {"url": receiver.url()})
    assert refused.problem == (409, "refused")
    assert "CLUSTERTAB_SECRET_KEYS" in refused.body["detail"]


def test_api_052_operators_get_everybodys_events(
    house: House, op: Door, ann: Door, receiver: Receiver
) -> None:
    put(op, receiver, "ops", event_types=["cluster.stale", "invoice.paid"])
    assert ann.reads("/webhooks")["data"] == []
    assert ann.get("/webhooks/ops").problem == (404, "not-found")
    assert [row["name"] for row in op.reads("/webhooks")["data"]] == ["ops"]


def test_api_018_webhooks_need_their_scope_and_the_role(house: House, receiver: Receiver) -> None:
    body = {"url": receiver.url()}
    for narrow in (door(house.ann, house.vision, "keys:write"), door(house.ben, house.vision)):
        assert narrow.send("PUT", "/webhooks/hook", body).problem == (403, "missing-scope")
        assert narrow.get("/webhooks").problem == (403, "missing-scope")
    assert door(house.ann, house.vision, "webhooks:write").send("PUT", "/webhooks/hook", body).status == 200


def test_api_057_a_test_is_sent_and_its_delivery_says_how_it_went(
    house: House, ann: Door, receiver: Receiver
) -> None:
    put(ann, receiver)
    clock = a_clock()
    waiting = ann.writes("/webhooks/hook/tests")
    assert (waiting["type"], waiting["state"], waiting["attempts"]) == ("webhook.test", "waiting", 0)
    receiver.reply = lambda arrival: Reply(418, pieces=(b"short and stout",))
    clock.passes(seconds=5)
    deliver(clock)
    failed = next(row for row in ann.all("/webhooks/hook/deliveries") if row["id"] == waiting["id"])
    assert failed["event"] == waiting["event"] == receiver.arrivals[0].id
    assert (failed["state"], failed["status"], failed["answer"]) == ("waiting", 418, "short and stout")
    assert failed["attempts"] == 1
    assert failed["next_at"] > failed["tried_at"]
    assert failed["milliseconds"] >= 0
    assert ann.reads("/webhooks/hook")["failing_since"] == failed["tried_at"]


def test_api_057_deliveries_are_listed_by_state_and_sent_again(
    house: House, ann: Door, receiver: Receiver
) -> None:
    put(ann, receiver)
    clock = a_clock()
    deliver(clock)  # the house's own events come before
    ann_events = len(receiver.arrivals)
    happens(house.vision, 1)
    clock.passes(seconds=1)
    deliver(clock)
    newest = ann.reads("/webhooks/hook/deliveries?limit=1")["data"][0]
    assert (newest["state"], newest["status"], newest["error"]) == ("delivered", 204, "")
    assert ann.reads("/webhooks/hook/deliveries?state=failed")["data"] == []
    assert ann.get("/webhooks/hook/deliveries?state=lost").problem == (400, "invalid-request")
    assert ann.writes("/webhooks/hook/resends", {"delivery": newest["id"]}) == {"deliveries": 1}
    clock.moment = datetime.now(UTC) + timedelta(seconds=1)
    deliver(clock)
    assert [arrival.id for arrival in receiver.arrivals[ann_events:]] == [newest["event"]] * 2
    since = {"since": "2000-01-01T00:00:00Z"}
    everything = len(ann.all("/events"))
    assert ann.writes("/webhooks/hook/resends", since) == {"deliveries": everything}


@pytest.mark.parametrize(
    "body",
    [
        {}, {"delivery": "dlv_0000000000000", "since": "2026-01-01T00:00:00Z"}, {"delivery": "evt_1"},
        {"since": "yesterday"}, {"since": "2026-01-01T00:00:00"}, {"since": "2026-01-01T00:00:00Z", "all": True},
    ],
)  # fmt: skip
def test_api_057_what_is_to_be_sent_again_has_to_be_said(
    ann: Door, receiver: Receiver, body: dict[str, Any]
) -> None:
    put(ann, receiver)
    assert ann.post("/webhooks/hook/resends", body).problem == (400, "invalid-request")


def test_api_057_a_delivery_of_another_webhook_is_not_sent_again(
    house: House, ann: Door, receiver: Receiver
) -> None:
    put(ann, receiver)
    put(ann, receiver, "other")
    row = ann.writes("/webhooks/other/tests")
    assert ann.post("/webhooks/hook/resends", {"delivery": row["id"]}).problem == (404, "not-found")


def test_api_057_what_is_off_is_turned_on_first(ann: Door, receiver: Receiver) -> None:
    put(ann, receiver, active=False)
    refused = ann.post("/webhooks/hook/tests")
    assert refused.problem == (409, "refused")
    assert refused.body["detail"] == "hook is turned off: turn it on first."


def test_api_028_a_rotated_secret_is_neither_stored_nor_sent_again(ann: Door, receiver: Receiver) -> None:
    first = put(ann, receiver)["secret"]
    rotated, again = (ann.post("/webhooks/hook/rotations", {}, key="r") for _ in range(2))
    assert rotated.body["secret"] not in {first, None}
    assert again.body == rotated.body | {"secret": None}
    until = datetime.fromisoformat(rotated.body["previous_until"]) - datetime.now(UTC)
    assert timedelta(hours=23, minutes=59) < until <= timedelta(hours=24)
    assert ann.post("/webhooks/hook/rotations", {"overlap_hours": 169}).problem == (400, "invalid-request")


def test_api_023_the_history_has_who_but_no_secret(house: House, ann: Door, receiver: Receiver) -> None:
    secret = put(ann, receiver)["secret"]
    entry = AuditEntry.objects.of_table(Webhook).latest("pk")
    assert entry.who.startswith(house.ann.email)
    after = entry.after or {}
    assert "url" in after
    assert not {"secret", "previous_secret"} & {*after}
    assert secret not in str(after)


def test_api_062_a_list_of_deliveries_takes_a_fixed_number_of_queries(
    house: House, ann: Door, receiver: Receiver
) -> None:
    put(ann, receiver)
    counts = []
    for _ in range(2):
        for _ in range(10):
            ann.writes("/webhooks/hook/tests")
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert ann.get("/webhooks/hook/deliveries").status == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
