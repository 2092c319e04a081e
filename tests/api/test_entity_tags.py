"""Nobody's change is lost: every address that is read and written, with every method. Case 11 of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import PaymentLink
from clusters.models import Cluster, Connection
from portal.api.models import ApiKey
from portal.api.routes import routes
from portal.core.tenants.models import Invitation
from portal.core.webhooks.models import Webhook
from tests import builders
from tests.api.addresses import filled
from tests.api.door import Answer, Door, door
from tests.api.test_walk import named
from tests.web.house import House
from tests.web.sign_up_stories import offer_plans
from tests.webhooks import inner_networks

pytestmark = pytest.mark.django_db

WRITERS = ("put", "patch", "delete")


@pytest.fixture(autouse=True)
def _webhooks_of_this_machine() -> Iterator[None]:
    with inner_networks():
        yield


@dataclass(frozen=True)
class Object:
    """What somebody else does to the object meanwhile, and what the request would make of it."""

    theirs: Any  # body of a PUT, or of a PATCH where there is no PUT
    ours: Any
    tenant: bool = False  # with Ann's key, else with Op's
    make: Any = None  # body of the PUT that makes it first, where the house has none
    name: str = ""  # in place of the house's
    meanwhile: Callable[[], Any] | None = None  # where the API itself can change nothing about it


TODAY = datetime.now(UTC).date()
SPARE = {"currency": "USD", "charges": ["gpu"], "price": [{"meter": "gpu-hour", "unit_price": "1.50"}]}
DEARER = SPARE | {"price": [{"meter": "gpu-hour", "unit_price": "1.75"}]}
QUOTA = {"measure": "money", "amount": "10.00", "every": "month"}
LIMIT = {"jobs": 40}
WASTE = {"hours": 4, "action": "notify"}
FAILURES = {"percent": 50}
PHASE = {"plan": "vision-deal", "from": "2017-01-01"}

OBJECTS = {
    "tenants/<str:name>": Object({"name": "Vision", "city": "Jena"}, {"name": "Vision", "city": "Ulm"}),
    "tenants/<str:name>/members/<str:email>": Object({"role": "viewer"}, {"role": "billing"}),
    "tenants/<str:name>/invitations/<str:invitation>": Object(
        None, None, meanwhile=lambda: Invitation.objects.update(role="member")
    ),
    "tenants/<str:name>/subscriptions": Object(
        {"phase": [PHASE, {"plan": "spare", "from": "2090-01-01"}]}, {"phase": [PHASE]}
    ),
    "ownerships/<str:name>": Object({"until": "2090-01-01"}, {"until": None}),
    "payers/<str:name>": Object({"until": "2091-01-01"}, {"until": "2092-01-01"}),
    "plans/<str:name>": Object(
        None, None, name="plans/spare",
        meanwhile=lambda: door(builders.an_operator("tom"), None).send(
            "PUT", "/plans/spare/versions/2031-01-01", DEARER
        ),
    ),
    "plans/<str:name>/versions/<str:day>": Object(
        DEARER, SPARE, name="plans/spare/versions/2030-01-01", make=SPARE
    ),
    "meters/<str:name>": Object(
        {"title": "Disks", "unit": "GB-month"}, {"title": "Tapes", "unit": "GB-month"}
    ),
    "clusters/<str:name>": Object(
        {"timezone": "Europe/Paris"}, {"timezone": "Europe/Rome"}, name="clusters/live"
    ),
    "clusters/<str:name>/connection": Object(
        {"url": "https://one.example", "token": "a.b.c"},
        {"url": "https://two.example", "token": "a.b.c"},
        name="clusters/live/connection",
        make={"url": "https://nil.example", "token": "a.b.c"},
    ),
    "keys/<str:name>": Object({"name": "theirs"}, {"name": "ours"}, tenant=True),
    "quotas/<str:name>": Object(QUOTA | {"amount": "20.00"}, QUOTA, tenant=True, make=QUOTA),
    "limits/<str:name>": Object(
        LIMIT | {"jobs": 20}, LIMIT, make=LIMIT, name="limits/most?tenant=vision-lab"
    ),
    "payment-links/<str:name>": Object(
        None, None, tenant=True, meanwhile=lambda: PaymentLink.objects.update(maker="somebody else")
    ),
    "waste-rules/<str:name>": Object(WASTE | {"hours": 6}, WASTE, make=WASTE),
    "failure-rules/<str:name>": Object(FAILURES | {"percent": 60}, FAILURES, make=FAILURES),
    "sign-up-policy": Object({"open": True}, {"open": True, "approval": False}),
    "plan-change": Object({"plan": "starter"}, {"plan": "growth"}, tenant=True, make={"plan": "growth"}),
    "departure": Object(
        {"leaves_on": f"{TODAY + timedelta(days=9)}"}, {"leaves_on": f"{TODAY + timedelta(days=8)}"},
        tenant=True, make={"leaves_on": f"{TODAY + timedelta(days=7)}"},
    ),
    "webhooks/<str:name>": Object(
        {"url": "https://127.0.0.1/", "event_types": ["invoice.paid"]},
        {"url": "https://127.0.0.1/", "event_types": []},
        tenant=True,
    ),
}  # fmt: skip

MADE_AT_ONCE = {
    "tenants/<str:name>/dunning-pauses",
    "clusters/<str:name>/files/<str:file>",
    "clusters/<str:name>/bills/<str:file>",
    "job-reservations/<path:name>",
}
"""Lists, files and reservations: no object is read there whose change could be lost."""


def writers() -> dict[str, list[str]]:
    """The methods that write an object, of each address."""
    return {
        str(route.pattern): [
            method.upper()
            for method in WRITERS
            if hasattr(route.callback.view_class, method)  # type: ignore[attr-defined]
        ]
        for route in routes
    }


def test_api_011_the_table_has_every_address_that_is_written() -> None:
    written = {address for address, methods in writers().items() if methods}
    assert written == {*OBJECTS, *MADE_AT_ONCE}


@dataclass
class Story:
    """One object with whoever writes it."""

    writer: Door
    path: str
    one: Object
    methods: list[str]

    def send(self, method: str, body: Any, **headers: str) -> Answer:
        answer = self.writer.send(method, self.path, None if method == "DELETE" else body, **headers)
        assert answer.status != 400, answer.raw
        return answer

    def change_meanwhile(self) -> None:
        if self.one.meanwhile is not None:
            self.one.meanwhile()
        else:
            assert self.send("PUT" if "PUT" in self.methods else "PATCH", self.one.theirs).status == 200

    @property
    def tag(self) -> str:
        return self.writer.get(self.path).headers["ETag"]


def story(house: House, op: Door, ann: Door, address: str, monkeypatch: pytest.MonkeyPatch) -> Story:
    one = OBJECTS[address]
    monkeypatch.setattr("portal.api.limits.WRITES", 1000)
    Cluster.objects.create(name="live", kind="slurm")
    op.send("PUT", "/plans/spare/versions/2029-01-01", SPARE)
    offer_plans(house)
    path = "/" + (one.name or filled(address, named(house)))
    writer = ann if one.tenant else op
    if one.make is not None:
        assert writer.send("PUT", path, one.make).status == 200
    return Story(writer, path, one, writers()[address])


@pytest.mark.parametrize("address", OBJECTS)
def test_api_011_nobodys_change_of_an_object_is_lost(
    house: House, op: Door, ann: Door, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = story(house, op, ann, address, monkeypatch)
    stale = it.tag
    again = it.writer.get(it.path, **{"If-None-Match": f'"other", {stale}'})
    assert (again.status, again.raw, again.headers["ETag"]) == (304, b"", stale)
    it.change_meanwhile()
    anew = it.writer.get(it.path, **{"If-None-Match": stale})
    assert (anew.status, anew.headers["ETag"] == stale) == (200, False)
    refusals = [(method, {"If-Match": stale}, "changed-meanwhile") for method in it.methods]
    if "PUT" in it.methods:
        refusals.append(("PUT", {"If-None-Match": "*"}, "exists-already"))
    for method, condition, kind in refusals:
        assert it.send(method, it.one.ours, **condition).problem == (412, kind), method
    assert it.writer.get(it.path).raw == anew.raw
    tag = anew.headers["ETag"]
    for method in it.methods:
        with CaptureQueriesContext(connection) as queries:
            done = it.send(
                method, it.one.ours, **{"If-Match": f'"elsewhere", W/{tag}'}
            )  # as it comes compressed
        assert done.status == (204 if method == "DELETE" else 200), done.raw
        statements = [query["sql"] or "" for query in queries]  # none of a prepared one
        assert any(" FOR UPDATE" in sql or " FOR NO KEY UPDATE" in sql for sql in statements)
        if method != "DELETE":
            assert done.headers["ETag"] == it.tag
            assert method == "PATCH" or it.tag != tag
            tag = it.tag


def a_run() -> None:
    run = builders.a_job(started="2026-05-05 10:00", ended="2026-05-05 11:00")
    builders.ingest(Cluster.objects.get(name="gpu1"), run)


LATER = builders.at("2026-05-01")
MOVES: dict[str, Callable[[], Any]] = {
    "clusters/<str:name>": lambda: Cluster.objects.update(complete_through=LATER),
    "clusters/<str:name>/connection": lambda: Connection.objects.update(last_success_at=LATER, failures=1),
    "keys/<str:name>": lambda: ApiKey.objects.update(used_at=LATER),
    "webhooks/<str:name>": lambda: Webhook.objects.update(failing_since=LATER),
    "quotas/<str:name>": a_run,
}
"""A cluster is pulled, a key used, an endpoint fails, a run goes on: nobody changed what was set."""


@pytest.mark.parametrize("address", MOVES)
def test_api_011_what_changes_by_itself_is_read_anew_and_refuses_no_change(
    house: House, op: Door, ann: Door, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = story(house, op, ann, address, monkeypatch)
    tag = it.tag
    MOVES[address]()
    assert it.writer.get(it.path, **{"If-None-Match": tag}).status == 200
    method = "PUT" if "PUT" in it.methods else "PATCH"
    assert it.send(method, it.one.ours, **{"If-Match": tag}).status == 200
