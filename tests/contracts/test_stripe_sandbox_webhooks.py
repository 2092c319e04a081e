"""The stand-in for Stripe announces what happened: signed, again and again, and wrongly where a test orders it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import stripe

from portal.dev.stripe_sandbox import Sandbox
from tests.contracts.stripe_client import SECRET, a_sandbox, ann, client, key


class Ear(ThreadingHTTPServer):
    """An endpoint that writes down what it hears."""

    status = 200

    def __init__(self) -> None:
        self.received: list[tuple[bytes, str]] = []
        super().__init__(("127.0.0.1", 0), Hearing)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/webhook"

    def names(self) -> list[str]:
        return [
            stripe.Webhook.construct_event(body, signed, SECRET).data.object["name"]
            for body, signed in self.received
        ]


class Hearing(BaseHTTPRequestHandler):
    server: Ear

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((body, self.headers["Stripe-Signature"]))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def listening() -> Iterator[tuple[Sandbox, stripe.StripeClient, Ear]]:
    with Ear() as ear:
        thread = threading.Thread(target=ear.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        with a_sandbox(webhook=ear.url) as sandbox:
            yield sandbox, client(sandbox), ear
        ear.shutdown()
        thread.join()


def tell(api: stripe.StripeClient, *names: str) -> None:
    for name in names:
        api.v1.customers.create({"name": name}, key())


def undelivered(api: stripe.StripeClient) -> list[str]:
    return [event.data.object["name"] for event in api.v1.events.list({"delivery_success": False}).data]


def test_an_event_arrives_signed_over_its_raw_body() -> None:
    with listening() as (sandbox, api, ear):
        tell(api, "Ann")
        sandbox.webhooks.wait()
        body, signed = ear.received[0]
        event = stripe.Webhook.construct_event(body, signed, SECRET)
        assert (event.type, event.api_version) == ("customer.created", stripe.api_version)
        assert event.request is not None
        assert event.request.idempotency_key == sandbox.requests[0].key
        for wrong in ((body + b" ", SECRET), (body, "whsec_other")):
            with pytest.raises(stripe.SignatureVerificationError):
                stripe.Webhook.construct_event(wrong[0], signed, wrong[1])
        assert undelivered(api) == []
        assert api.v1.events.retrieve(event.id).pending_webhooks == 0


def test_while_a_secret_is_rolled_both_sign() -> None:
    with a_sandbox() as sandbox:
        new = sandbox.webhooks.roll()
        tell(client(sandbox), "Ann")
        message = sandbox.webhooks.take()[0]
        for secret in (SECRET, new):
            assert stripe.Webhook.construct_event(message.body, message.headers["Stripe-Signature"], secret)
        sandbox.webhooks.forget(SECRET)
        tell(client(sandbox), "Ben")
        message = sandbox.webhooks.take()[0]
        with pytest.raises(stripe.SignatureVerificationError):
            stripe.Webhook.construct_event(message.body, message.headers["Stripe-Signature"], SECRET)


def test_a_message_may_be_signed_long_ago() -> None:
    with a_sandbox() as sandbox:
        tell(client(sandbox), "Ann")
        message = sandbox.webhooks.take(signed_at=int(time.time()) - 301)[0]
        with pytest.raises(stripe.SignatureVerificationError, match="tolerance"):
            stripe.Webhook.construct_event(message.body, message.headers["Stripe-Signature"], SECRET)


def test_messages_are_doubled_lost_and_late_as_ordered() -> None:
    with listening() as (sandbox, api, ear):
        sandbox.webhooks.duplicate("customer.*", copies=2)
        tell(api, "Ann")
        sandbox.webhooks.wait()
        assert ear.names() == ["Ann"] * 3
        sandbox.webhooks.lose()
        tell(api, "Ben")
        sandbox.webhooks.wait()
        assert (ear.names()[3:], undelivered(api)) == ([], ["Ben"])
        sandbox.webhooks.delay(60)
        tell(api, "Cy", "Di")
        sandbox.webhooks.wait()
        assert ear.names()[3:] == ["Di"]
        sandbox.clock.advance(seconds=60)
        sandbox.webhooks.wait()
        assert ear.names()[3:] == ["Di", "Cy"]
        assert sandbox.webhooks.redeliver() == 1
        sandbox.webhooks.wait()
        assert (ear.names()[5:], undelivered(api)) == (["Ben"], [])


def test_messages_are_held_and_leave_in_another_order() -> None:
    with listening() as (sandbox, api, ear):
        sandbox.webhooks.hold()
        tell(api, "Ann", "Ben", "Cy")
        assert undelivered(api) == ["Cy", "Ben", "Ann"]
        sandbox.webhooks.release("reversed")
        sandbox.webhooks.wait()
        assert ear.names() == ["Cy", "Ben", "Ann"]


def test_disorder_is_the_same_for_the_same_seed() -> None:
    deliveries = []
    for _ in range(2):
        with a_sandbox() as sandbox:
            sandbox.webhooks.disorder(7, duplicate=3, lose=4)
            tell(client(sandbox), *"ABCDEFGH")
            got = sandbox.webhooks.take()
            deliveries.append(
                [
                    stripe.Webhook.construct_event(
                        one.body, one.headers["Stripe-Signature"], SECRET
                    ).data.object["name"]
                    for one in got
                ]
            )
    assert deliveries[0] == deliveries[1]
    assert deliveries[0] != sorted(deliveries[0])
    assert len(set(deliveries[0])) < 8
    assert len(set(deliveries[0])) < len(deliveries[0])


def test_an_endpoint_that_is_down_gets_all_when_it_is_up_again() -> None:
    with listening() as (sandbox, api, ear):
        ear.status = 503
        tell(api, "Ann")
        sandbox.webhooks.wait()
        assert (len(ear.received), undelivered(api)) == (1, ["Ann"])
        sandbox.webhooks.down()
        tell(api, "Ben")
        sandbox.webhooks.wait()
        assert len(ear.received) == 1
        ear.status = 200
        sandbox.webhooks.up()
        sandbox.clock.advance(seconds=10)
        sandbox.webhooks.wait()
        assert (ear.names()[1:], undelivered(api)) == (["Ann", "Ben"], [])


def test_after_three_days_of_trying_it_is_given_up_and_still_listed_for_30() -> None:
    with listening() as (sandbox, api, ear):
        sandbox.webhooks.down()
        tell(api, "Ann")
        for _ in range(14):
            sandbox.webhooks.wait()
            sandbox.clock.advance(hours=12)
        sandbox.webhooks.up()
        sandbox.clock.advance(days=1)
        sandbox.webhooks.wait()
        assert (ear.received, undelivered(api)) == ([], ["Ann"])
        event = api.v1.events.list().data[0].id
        sandbox.clock.advance(days=30)
        assert undelivered(api) == []
        with pytest.raises(stripe.InvalidRequestError) as gone:
            api.v1.events.retrieve(event)
        assert gone.value.http_status == 404


def test_an_endpoint_made_by_the_api_gets_the_events_it_names() -> None:
    with Ear() as ear, a_sandbox(secret=None) as sandbox:
        thread = threading.Thread(target=ear.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        api = client(sandbox)
        endpoint = api.v1.webhook_endpoints.create(
            {"url": ear.url, "enabled_events": ["customer.deleted"], "api_version": "2026-10-28.endive"},
            key(),
        )
        assert endpoint.secret is not None
        assert endpoint.secret.startswith("whsec_")
        assert api.v1.webhook_endpoints.list().data[0].to_dict().get("secret") is None
        customer = ann(api)
        api.v1.customers.delete(customer, None, key())
        sandbox.webhooks.wait()
        assert [stripe.Webhook.construct_event(*one, endpoint.secret).type for one in ear.received] == [
            "customer.deleted"
        ]
        ear.shutdown()
        thread.join()


def test_what_never_happened_can_be_told_and_what_happened_be_hidden() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        sandbox.dashboard.alter(customer, name="Eve")
        sandbox.dashboard.announce("invoice.paid", {"id": "in_1", "object": "invoice"}, livemode=True)
        events = [json.loads(message.body) for message in sandbox.webhooks.take()]
        assert [(one["type"], one["livemode"]) for one in events] == [
            ("customer.created", False),
            ("invoice.paid", True),
        ]
        assert api.v1.customers.retrieve(customer).name == "Eve"


def test_events_are_listed_by_type_and_time() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        tell(api, "Ann")
        sandbox.clock.advance(hours=1)
        since = sandbox.clock.now()
        customer = ann(api)
        api.v1.customers.delete(customer, None, key())
        listed = api.v1.events.list(
            {"types": ["customer.created", "customer.deleted"], "created": {"gte": since}}
        )
        assert [event.type for event in listed.data] == ["customer.deleted", "customer.created"]
        assert len(api.v1.events.list({"type": "customer.*"}).data) == 3
        assert api.v1.events.list({"type": "charge.*"}).data == []
        with pytest.raises(stripe.InvalidRequestError):
            api.v1.events.list({"type": "customer.created", "types": ["customer.deleted"]})
