"""The stand-in for Stripe goes wrong where a test plans it."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import stripe

from portal.dev.stripe_sandbox import Sandbox
from tests.contracts.stripe_client import a_sandbox, ann, client, key


def customers(sandbox: Sandbox) -> int:
    return len(sandbox.objects("customer"))


@pytest.mark.parametrize(
    ("plan", "error", "status", "happened"),
    [
        (lambda sandbox: sandbox.faults.drop_answer(), stripe.APIConnectionError, None, 1),
        (lambda sandbox: sandbox.faults.cut_before(), stripe.APIConnectionError, None, 0),
        (lambda sandbox: sandbox.faults.server_error(), stripe.APIError, 500, 0),
        (lambda sandbox: sandbox.faults.server_error(effect=True), stripe.APIError, 500, 1),
        (lambda sandbox: sandbox.faults.rate_limited(), stripe.RateLimitError, 429, 0),
        (lambda sandbox: sandbox.faults.lock_timeout(), stripe.APIError, 409, 0),
        (lambda sandbox: sandbox.faults.unauthorized(times=1), stripe.AuthenticationError, 401, 0),
        (lambda sandbox: sandbox.faults.forbidden(times=1), stripe.PermissionError, 403, 0),
        (lambda sandbox: sandbox.faults.bad_gateway(), stripe.APIError, 502, 0),
        (lambda sandbox: sandbox.faults.bad_gateway(effect=True), stripe.APIError, 502, 1),
        (lambda sandbox: sandbox.faults.truncated(), stripe.APIError, 200, 1),
    ],
)
def test_a_fault_is_what_the_client_sees_once(
    plan: Callable[[Sandbox], object], error: type[stripe.StripeError], status: int | None, happened: int
) -> None:
    with a_sandbox() as sandbox:
        plan(sandbox)
        with pytest.raises(error) as seen:
            ann(client(sandbox))
        assert seen.value.http_status == status
        assert customers(sandbox) == happened
        ann(client(sandbox))
        assert customers(sandbox) == happened + 1


def test_a_lost_answer_is_heard_by_sending_the_same_again() -> None:
    with a_sandbox() as sandbox:
        api, same = client(sandbox), key()
        sandbox.faults.drop_answer("POST /v1/customers")
        with pytest.raises(stripe.APIConnectionError):
            api.v1.customers.create({"name": "Ann"}, same)
        assert sandbox.requests[-1].status is None
        assert sandbox.requests[-1].fault == "drop_answer"
        assert api.v1.customers.create({"name": "Ann"}, same).id == sandbox.objects("customer")[0]["id"]
        assert customers(sandbox) == 1


@pytest.mark.parametrize("stored", [True, False])
def test_a_500_is_repeated_if_it_was_stored_and_else_tried_anew(stored: bool) -> None:
    with a_sandbox() as sandbox:
        api, same = client(sandbox), key()
        sandbox.faults.server_error("POST /v1/customers", stored=stored)
        with pytest.raises(stripe.APIError):
            api.v1.customers.create({"name": "Ann"}, same)
        if stored:
            with pytest.raises(stripe.APIError):
                api.v1.customers.create({"name": "Ann"}, same)
        else:
            api.v1.customers.create({"name": "Ann"}, same)
        assert customers(sandbox) == (0 if stored else 1)


def test_the_client_tries_again_by_itself_with_the_same_key() -> None:
    with a_sandbox() as sandbox:
        api = stripe.StripeClient(sandbox.key, base_addresses={"api": sandbox.url}, max_network_retries=2)
        sandbox.faults.drop_answer("POST /v1/customers")
        ann(api)
        assert customers(sandbox) == 1
        assert sandbox.requests[0].key == sandbox.requests[1].key


def test_a_fault_waits_for_its_request_and_for_its_turn() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        sandbox.faults.rate_limited("POST /v1/customers", skip=1)
        assert api.v1.customers.list().data == []
        ann(api)
        with pytest.raises(stripe.RateLimitError):
            ann(api)


def test_a_fault_can_be_lifted() -> None:
    with a_sandbox() as sandbox:
        fault = sandbox.faults.unauthorized()
        for _ in range(3):
            with pytest.raises(stripe.AuthenticationError):
                client(sandbox).v1.balance.retrieve()
        sandbox.faults.lift(fault)
        assert client(sandbox).v1.balance.retrieve().object == "balance"


def test_a_request_that_ends_in_the_middle_does_nothing() -> None:
    with a_sandbox() as sandbox:
        host, port = sandbox.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as wire:
            wire.sendall(b"POST /v1/customers HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nname=Ann")
            wire.shutdown(socket.SHUT_WR)
            assert wire.recv(1) == b""
        assert customers(sandbox) == 0
        assert sandbox.requests == []
