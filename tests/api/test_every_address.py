"""What holds for every address, asked of every address. Cases 5, 12, 28 and 29 of the API, 88 of billing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from portal.api.routes import routes
from tests import builders
from tests.api.addresses import ADDRESSES, Address, filled
from tests.api.door import Door, door
from tests.api.test_walk import named
from tests.web.house import House
from tests.webhooks import inner_networks

pytestmark = pytest.mark.django_db

VIEWS = {str(route.pattern): route.callback.view_class for route in routes}  # type: ignore[attr-defined]
READ = [address for address in ADDRESSES if address.method == "GET"]
POSTED = [address for address in ADDRESSES if address.method == "POST"]
NO_JSON = {"clusters/<str:name>/files/<str:file>", "clusters/<str:name>/bills/<str:file>"}  # take a file
EVENTS = "usage-events"  # answers for each event of its own


@pytest.fixture(autouse=True)
def _as_often_as_wanted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("portal.api.limits.REQUESTS", 10_000)
    monkeypatch.setattr("portal.api.limits.WRITES", 10_000)
    with inner_networks():
        yield


@pytest.fixture
def names(house: House) -> dict[str, str]:
    return named(house)


def path_of(address: Address, names: dict[str, str]) -> str:
    return "/" + filled(address.route, names)


@dataclass(frozen=True)
class Doors:
    """Of Ann, of Op, and of a program of the cluster: one of them may ask each address."""

    ann: Door
    op: Door
    program: Door

    def of(self, address: Address) -> Door:
        return self.program if address.cluster else self.ann if address.tenant else self.op


@pytest.fixture
def doors(house: House, ann: Door, op: Door) -> Doors:
    return Doors(ann, op, door(house.op, None, "jobs:check", "jobs:reserve", cluster=house.cluster))


def test_api_005_no_address_reads_past_a_parameter_that_it_does_not_know(
    doors: Doors, names: dict[str, str]
) -> None:
    for address in ADDRESSES:
        key = {"Idempotency-Key": "misspelt"} if address.method == "POST" else {}
        path = path_of(address, names) + (address.query + "&" if address.query else "?") + "misspelt=1"
        answer = doors.of(address).send(address.method, path, address.body, **key)
        assert answer.problem == (400, "invalid-request"), (address, answer.raw)
        assert "misspelt" in answer.body["detail"], address


def test_api_005_no_address_reads_past_a_field_that_it_does_not_know(
    doors: Doors, names: dict[str, str]
) -> None:
    for address in ADDRESSES:
        if address.method in {"GET", "DELETE"} or address.route in NO_JSON | {EVENTS}:
            continue
        body = json.loads(address.text or "{}") | {"misspelt": 1}
        key = {"Idempotency-Key": path_of(address, names)} if address.method == "POST" else {}
        answer = doors.of(address).send(address.method, path_of(address, names), body, **key)
        assert answer.problem == (400, "invalid-request"), (address, answer.raw)
        assert "/misspelt" in [error["pointer"] for error in answer.body["errors"]], (address, answer.raw)


AMBIGUOUS = (b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[" * 21 + b"]" * 21, b"{")


def test_api_005_no_address_takes_ambiguous_json(doors: Doors, names: dict[str, str]) -> None:
    builders.a_cluster("pushed", kind="push")
    for number, body in enumerate(AMBIGUOUS):
        for address in ADDRESSES:
            if address.method in {"GET", "DELETE"} or address.route in NO_JSON:
                continue
            path = path_of(address, names)
            key = {"Idempotency-Key": f"{number}{path}"} if address.method == "POST" else {}
            query = "?cluster=pushed" if address.route == EVENTS else ""
            answer = doors.of(address).send(address.method, path + query, body, **key)
            assert answer.problem == (400, "invalid-request"), (address, answer.raw)


def test_api_012_every_address_has_heads_options_and_is_private(doors: Doors, names: dict[str, str]) -> None:
    for address in READ:
        client, path = doors.of(address), path_of(address, names) + address.query
        read, head = client.get(path), client.send("HEAD", path)
        assert (head.status, head.raw) == (read.status, b""), address
        for answer in (read, head):
            assert {"private", "no-store"} <= {*answer.headers["Cache-Control"].split(", ")}, address
            assert "Access-Control-Allow-Origin" not in answer.headers, address
    for route, view in VIEWS.items():
        client = doors.of(next(address for address in ADDRESSES if address.route == route))
        answer = client.send("OPTIONS", "/" + filled(route, names))
        assert answer.status == 204, (route, answer.raw)
        methods = {
            method.upper() for method in ("get", "post", "put", "patch", "delete") if hasattr(view, method)
        }
        allowed = {*answer.headers["Allow"].split(", ")} - {"HEAD", "OPTIONS"}
        assert allowed == methods, route


def test_case_088_api_028_api_029_every_post_does_it_once_under_a_key(
    doors: Doors, names: dict[str, str]
) -> None:
    """Whatever the first answer was: a refusal is stored as well."""
    for address in POSTED:
        client, path = doors.of(address), path_of(address, names)
        key = path.replace(" ", "-")
        first = client.post(path, address.body, key=key)
        again = client.post(path, address.body, key=key)
        assert again.headers.get("Idempotent-Replayed") == "true", address
        assert again.status == first.status, address
        if b'"secret"' in first.raw:  # sent once
            assert again.body == first.body | {"secret": None}, address
        else:
            assert again.raw == first.raw, address
        other = client.post(path, {"another": "intent"}, key=key)
        assert other.problem == (422, "key-reused"), (address, other.raw)


def test_api_028_what_moves_money_or_issues_documents_needs_a_key_at_every_address(
    doors: Doors, names: dict[str, str]
) -> None:
    needed = {address.route for address in POSTED if VIEWS[address.route].needs_idempotency}
    assert needed == {
        "approvals/<str:name>/decisions",
        "closes",
        "clusters/<str:name>/acts",
        "departures/<str:name>/endings",
        "invoices/<str:name>/credit-notes",
        "invoices/<str:name>/manual-payments",
        "invoices/<str:name>/payments",
        "invoices/<str:name>/write-offs",
        "sign-ups/<str:name>/decisions",
        "wallets/<str:name>/grants",
    }
    for address in POSTED:
        if address.route in needed:
            refused = doors.of(address).post(path_of(address, names), address.body)
            assert refused.problem == (400, "invalid-request"), address
            assert "Idempotency-Key" in refused.body["detail"], address
