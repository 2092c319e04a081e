"""The stand-in for Stripe takes what the installed package's own types allow, from whom may ask it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import stripe

from portal.dev.stripe_sandbox import PORTAL_RIGHTS, Sandbox, routes, shapes
from tests.contracts.stripe_client import NOON, ann, charge, client, key

PACKAGE = Path(stripe.__file__).parent


def send(sandbox: Sandbox, path: str, form: str, **headers: str) -> httpx.Response:
    """A POST as any program could write it."""
    usual = {
        "Authorization": f"Bearer {sandbox.key}",
        "Stripe-Version": shapes.VERSION,
        "Idempotency-Key": "ct:test:raw",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    request_headers = {**usual, **{name.replace("_", "-"): text for name, text in headers.items()}}
    return httpx.post(
        sandbox.url + path, content=form, headers={k: v for k, v in request_headers.items() if v}
    )


def rules(sandbox: Sandbox) -> list[str]:
    return [one.rule for one in sandbox.violations]


@pytest.mark.parametrize(
    ("form", "param", "code"),
    [
        ("currency=eur", "amount", "parameter_missing"),
        ("amount=100&currency=eur&ammount=1", "ammount", "parameter_unknown"),
        ("amount=1.5&currency=eur", "amount", "parameter_invalid_integer"),
        ("amount=100&currency=eur&confirm=yes", "confirm", None),
        ("amount=100&currency=eur&setup_future_usage=forever", "setup_future_usage", None),
        ("amount=100&currency=eur&metadata[a][b]=1", "metadata[a]", None),
        (f"amount=100&currency=eur&metadata[{'a' * 41}]=1", f"metadata[{'a' * 41}]", None),
        (f"amount=100&currency=eur&metadata[a]={'b' * 501}", "metadata[a]", None),
        ("amount=100&currency=eur&description=", "description", "parameter_invalid_empty"),
        ("amount=100&currency=eur&shipping[name]=Ann", "shipping[address]", "parameter_missing"),
        ("amount=100&currency=eur&allowed_payment_method_types=card", "allowed_payment_method_types", None),
        ("amount=100&currency=eur&payment_method_types[0]=card", "payment_method_types", "parameter_unknown"),
        ("amount=100&currency=eur&transfer_group[a]=1", "transfer_group", None),
        ("amount=100&currency=eur&api_key=x", "api_key", "parameter_unknown"),
        (
            "amount=100&currency=eur&application_fee_amount=1",
            "application_fee_amount",
            "sandbox_not_modelled",
        ),
    ],
)
def test_a_parameter_that_the_types_do_not_allow_is_refused_by_its_name(
    form: str, param: str, code: str | None
) -> None:
    with Sandbox() as sandbox:
        refused = send(sandbox, "/v1/payment_intents", form)
        error = refused.json()["error"]
        assert (refused.status_code, error["type"]) == (400, "invalid_request_error")
        assert (error["param"], error.get("code")) == (param, code)
        assert rules(sandbox) == ["parameters"]
        assert sandbox.objects("payment_intent") == []


def test_the_client_hears_why_payment_method_types_is_refused() -> None:
    with Sandbox() as sandbox:
        params: Any = {"amount": 100, "currency": "eur", "payment_method_types": ["card"]}
        with pytest.raises(stripe.InvalidRequestError, match="use allowed_payment_method_types"):
            client(sandbox).v1.payment_intents.create(params, key())
        payment = client(sandbox).v1.payment_intents.create(
            {"amount": 100, "currency": "eur", "allowed_payment_method_types": ["card"]}, key()
        )
        assert payment.payment_method_types == ["card"]


def test_nested_parameters_and_lists_arrive_as_the_client_sent_them() -> None:
    with Sandbox() as sandbox:
        customer = client(sandbox).v1.customers.create(
            {
                "name": "Müller & Söhne [GmbH]",
                "address": {"line1": "1 = 2?", "city": "Köln"},
                "preferred_locales": ["de", "en"],
                "metadata": {"ct_tenant": "a&b"},
            },
            key(),
        )
        assert customer.name == "Müller & Söhne [GmbH]"
        assert customer.address is not None
        assert customer.address.city == "Köln"
        assert customer.preferred_locales == ["de", "en"]
        assert sandbox.requests[0].params["address"] == {"line1": "1 = 2?", "city": "Köln"}
        assert sandbox.violations == []


def endpoints() -> Iterator[tuple[str, str, str]]:
    """Method, address and parameter class of every request that the installed package can send."""
    for file in [*PACKAGE.glob("_*_service.py"), *(PACKAGE / "checkout").glob("_*_service.py")]:
        prefix = "checkout." if file.parent.name == "checkout" else ""
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            described = [
                re.search(r"(\w+Params)\b", ast.unparse(one.annotation))
                for one in node.args.args
                if one.annotation
            ]
            names = [one[1] for one in described if one]
            sent = [
                call
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "self._request"
            ]
            for call in sent:
                method, address = (ast.unparse(one).replace("'", "") for one in call.args[:2])
                where = re.sub(r"\{[^}]*\}", "{}", address.split(".format(")[0])
                yield method.upper(), where, prefix + names[0]


def test_every_endpoint_has_the_class_that_the_package_sends_it_with() -> None:
    package_endpoints = set(endpoints())
    assert len(package_endpoints) > 100
    assert [
        route
        for route in routes.ROUTES
        if (route.method, route.pattern, route.described) not in package_endpoints
    ] == []


def test_no_key_a_wrong_key_and_a_revoked_key_are_refused() -> None:
    with Sandbox() as sandbox:
        assert send(sandbox, "/v1/customers", "name=Ann", Authorization="").status_code == 401
        with pytest.raises(stripe.AuthenticationError, match="Invalid API Key provided: sk_test_"):
            client(sandbox, api_key="sk_test_somebody_elses").v1.customers.list()
        sandbox.keys.revoke(sandbox.key)
        with pytest.raises(stripe.AuthenticationError):
            client(sandbox).v1.customers.list()
        assert sandbox.objects("customer") == []


def test_a_restricted_key_may_what_it_was_given() -> None:
    with Sandbox() as sandbox:
        api = client(sandbox, api_key=sandbox.keys.restrict("rk_test_portal", PORTAL_RIGHTS))
        customer = ann(api)
        assert charge(api, customer, sandbox.dashboard.save_card(customer)).status == "succeeded"
        assert api.v1.payouts.list().data == []
        with pytest.raises(stripe.PermissionError, match="rak_webhook_write"):
            api.v1.webhook_endpoints.create({"url": "https://x.example", "enabled_events": ["*"]}, key())
        reader = client(
            sandbox, api_key=sandbox.keys.restrict("rk_test_reader", frozenset({"rak_customer_read"}))
        )
        assert len(reader.v1.customers.list().data) == 1
        with pytest.raises(stripe.PermissionError, match="rak_customer_write"):
            ann(reader)


def test_a_live_key_is_refused_and_noted_unless_the_account_is_live() -> None:
    with Sandbox() as sandbox:
        with pytest.raises(stripe.AuthenticationError):
            client(sandbox, api_key="sk_live_sandbox").v1.customers.list()
        assert rules(sandbox) == ["key_of_other_mode"]
    with Sandbox(live=True) as sandbox:
        assert sandbox.key.startswith("sk_live_")
        assert client(sandbox).v1.customers.create({"name": "Ann"}, key()).livemode is True


def test_another_version_of_the_api_is_noted() -> None:
    with Sandbox() as sandbox:
        assert send(sandbox, "/v1/customers", "name=Ann", Stripe_Version="2024-06-20").status_code == 200
        assert rules(sandbox) == ["stripe_version"]


def test_a_post_without_a_key_of_ours_is_noted() -> None:
    with Sandbox() as sandbox:
        assert send(sandbox, "/v1/customers", "name=Ann", Idempotency_Key="").status_code == 200
        client(sandbox).v1.customers.create({"name": "Ben"})  # the client makes a random key up
        assert rules(sandbox) == ["no_idempotency_key", "made_up_idempotency_key"]


def test_what_the_sandbox_does_not_have_is_noted() -> None:
    with Sandbox() as sandbox:
        with pytest.raises(stripe.InvalidRequestError, match="Unrecognized request URL"):
            client(sandbox).v1.products.list()
        assert rules(sandbox) == ["unknown_endpoint"]


def test_every_request_is_kept_without_the_secret() -> None:
    with Sandbox(now=NOON) as sandbox:
        customer = ann(client(sandbox))
        with pytest.raises(stripe.InvalidRequestError):
            client(sandbox).v1.customers.retrieve("cus_nobody")
        creation, retrieval = sandbox.requests
        assert (creation.method, creation.path, creation.status) == ("POST", "/v1/customers", 200)
        assert creation.params == {"email": "ann@example.org", "name": "Ann"}
        assert creation.key is not None
        assert creation.key.startswith("ct:test:")
        assert creation.at == int(NOON.timestamp())
        assert creation.headers["stripe-version"] == stripe.api_version
        assert (retrieval.path, retrieval.status) == ("/v1/customers/cus_nobody", 404)
        assert customer
        assert sandbox.key not in repr(sandbox.requests)
