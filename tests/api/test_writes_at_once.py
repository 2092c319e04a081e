"""Scripts of Op's write one object at once: each sees what the one before did. Cases 11 and 31 of the API."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest
from django.db import connection, connections

from portal.api.resources.operators.tenants import OneTenant
from portal.core.tenants.models import Tenant
from tests import builders
from tests.api.door import Answer, Door, door
from tests.webhooks import inner_networks

pytestmark = pytest.mark.django_db(transaction=True)

WRITERS = 6
ONLY_NEW = {"If-None-Match": "*"}
PLAN: dict[str, Any] = {"currency": "USD", "charges": ["gpu"]}
NEW: dict[str, list[dict[str, Any]]] = {
    "/webhooks/chat": [{"url": f"https://127.0.0.1/{n}"} for n in range(WRITERS)],
    "/plans/spare/versions/2030-01-01": [
        PLAN | {"price": [{"meter": "gpu-hour", "unit_price": f"{n}.50"}]} for n in range(WRITERS)
    ],
    "/tenants/chem": [{"name": f"Chemistry {n}"} for n in range(WRITERS)],
    "/tenants/lab/members/new@lab.example": [
        {"role": "owner", "scheduler_users": [f"n{n}"]} for n in range(WRITERS)
    ],
    "/clusters/rhea": [{"shares": {"a100": {"shard": f"1/{n + 2}"}}} for n in range(WRITERS)],
    "/meters/disks": [{"title": f"Disks {n}", "unit": "GB-month"} for n in range(WRITERS)],
    "/waste-rules/idle": [{"hours": n + 1, "action": "notify"} for n in range(WRITERS)],
    "/quotas/most?tenant=lab": [
        {"measure": "money", "unit": "USD", "amount": f"{n}.00", "every": "month"} for n in range(WRITERS)
    ],
}
"""Bodies that make another object each, by its address."""


@pytest.fixture
def op(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr("portal.api.limits.WRITES", 1000)
    builders.a_tenant("lab")
    with inner_networks():
        yield door(builders.an_operator(), None)


def at_once(*requests: tuple[Door, str, str, Any, dict[str, str]]) -> list[Answer]:
    start = Barrier(len(requests))

    def send(request: tuple[Door, str, str, Any, dict[str, str]]) -> Answer:
        client, method, path, body, headers = request
        start.wait(10)
        try:
            return client.send(method, path, body, **headers)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(send, requests))


def put_at_once(op: Door, path: str, bodies: Sequence[Any], **headers: str) -> list[Answer]:
    return at_once(*((op, "PUT", path, body, headers) for body in bodies))


def waits_for_its_turn(writer: Future[Answer]) -> bool:
    deadline = time.monotonic() + 20
    with connection.cursor() as cursor:
        while time.monotonic() < deadline and not writer.done():
            cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            if cursor.fetchone()[0]:
                return True
            time.sleep(0.02)
    return False


@pytest.mark.parametrize("path", NEW)
def test_api_011_of_six_who_make_the_same_new_object_at_once_one_does(op: Door, path: str) -> None:
    assert op.get(path).status == 404  # and what the first request loads is there
    answers = put_at_once(op, path, NEW[path], **ONLY_NEW)
    assert sorted(answer.status for answer in answers) == [200, *[412] * (WRITERS - 1)]
    (made,) = (answer for answer in answers if answer.status == 200)
    assert {answer.problem for answer in answers if answer != made} == {(412, "exists-already")}
    stored = op.get(path)
    assert stored.headers["ETag"] == made.headers["ETag"]
    assert made.body | {"secret": None} == stored.body | {"secret": None}  # a webhook's is its maker's alone


def test_api_011_of_six_who_change_the_policy_that_they_know_at_once_one_does(op: Door) -> None:
    tag = op.get("/sign-up-policy").headers["ETag"]
    bodies = [{"domain_limit": n + 10} for n in range(WRITERS)]
    answers = put_at_once(op, "/sign-up-policy", bodies, **{"If-Match": tag})
    assert sorted(answer.status for answer in answers) == [200, *[412] * (WRITERS - 1)]
    (changed,) = (answer for answer in answers if answer.status == 200)
    assert op.reads("/sign-up-policy") == changed.body


def test_api_011_who_writes_at_once_waits_and_who_reads_or_writes_elsewhere_does_not(
    op: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, write = Event(), Event(), OneTenant.write

    def slow(endpoint: OneTenant, slug: str, values: dict[str, Any]) -> Tenant:
        if slug == "chem" and not begun.is_set():
            begun.set()
            assert go_on.wait(30)
        return write(endpoint, slug, values)

    monkeypatch.setattr(OneTenant, "write", slow)

    def send(name: str, path: str) -> Answer:
        try:
            return op.send("PUT", path, {"name": name}, **ONLY_NEW)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(send, "Chemistry", "/tenants/chem")
            assert begun.wait(10)
            second = pool.submit(send, "Alchemy", "/tenants/chem")
            assert waits_for_its_turn(second)
            assert op.get("/tenants/chem").status == 404
            assert send("Physics", "/tenants/phys").status == 200
        finally:
            go_on.set()
        assert (first.result().status, second.result().problem) == (200, (412, "exists-already"))
    assert op.reads("/tenants/chem")["name"] == "Chemistry"


@pytest.mark.parametrize("path", NEW)
def test_api_031_the_same_new_object_put_six_times_at_once_is_made_once(op: Door, path: str) -> None:
    answers = put_at_once(op, path, NEW[path][:1] * WRITERS)
    assert [answer.status for answer in answers] == [200] * WRITERS
    assert len({answer.headers["ETag"] for answer in answers}) == 1


def test_api_031_of_six_posts_of_the_same_tenant_at_once_one_makes_it(op: Door) -> None:
    keys = [{"Idempotency-Key": f"chem-{n}"} if n % 2 else {} for n in range(WRITERS)]
    answers = at_once(*((op, "POST", "/tenants", {"slug": "chem", "name": "Chemistry"}, key) for key in keys))
    assert sorted(answer.status for answer in answers) == [201, *[409] * (WRITERS - 1)]
    refused = [answer.body["detail"] for answer in answers if answer.status == 409]
    assert {*refused} == {"There is a tenant chem already: change it by PUT or PATCH /tenants/chem."}


def test_api_031_what_two_addresses_make_at_once_is_made_once(op: Door) -> None:
    """A person is let into six tenants, and a new plan gets six versions: person and plan are there once."""
    tenants = [builders.a_tenant(f"lab-{n}").slug for n in range(WRITERS)]
    owner: dict[str, str] = {"role": "owner"}
    answers = at_once(
        *((op, "PUT", f"/tenants/{slug}/members/new@lab.example", owner, {}) for slug in tenants)
    )
    assert [answer.status for answer in answers] == [200] * WRITERS
    (version, *_), years = NEW["/plans/spare/versions/2030-01-01"], range(2030, 2030 + WRITERS)
    answers = at_once(
        *((op, "PUT", f"/plans/spare/versions/{year}-01-01", version, ONLY_NEW) for year in years)
    )
    assert [answer.status for answer in answers] == [200] * WRITERS
    assert op.reads("/plans/spare")["versions"] == [f"{year}-01-01" for year in years]
