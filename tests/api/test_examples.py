"""Each example of the reference is sent, and answered as printed. Case 15 of the API.

To add one, write `"POST /things": {"path": "/things", "status": 0, "body": {…}}` into portal/api/examples.json and run
this file with CLUSTERTAB_WRITE_EXAMPLES=1, which writes what is answered. Read that, then `./run manage openapi`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import transaction

from portal.api import openapi
from portal.api.examples import FILE, JSON, Example, examples
from portal.api.routes import routes
from tests import stories
from tests.api.addresses import ADDRESSES
from tests.api.door import Answer, door
from tests.api.example_world import TODAY, World, a_world_of_examples
from tests.builders import a_cluster, a_person, at
from tests.collecting import a_scenario
from tests.einvoices import a_public_buyer, rendered
from tests.web.clock import stand_at

WRITES = os.environ.get("CLUSTERTAB_WRITE_EXAMPLES") == "1"
BY_CARD = ("POST", "/invoices/{name}/payments")
E_INVOICE = ("GET", "/invoices/{name}/einvoice.xml")
APART = (BY_CARD, E_INVOICE)
"""Stories of their own: with the sandbox of the gateway, and of a buyer who gets e-invoices."""


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, "https://portal.example"
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path
    # Tables here are as large as the stories before have left them.
    sizes = "SELECT '2026-03-01'::date, 1471479808::bigint"
    monkeypatch.setattr("billing.queries.sealed_months.TABLE_BYTES", sizes)
    cache.clear()
    stand_at(monkeypatch, TODAY, of="portal.api.views")
    for limit in ("REQUESTS", "WRITES"):
        monkeypatch.setattr(f"portal.api.limits.{limit}", 10_000)


def test_api_015_every_endpoint_has_an_example() -> None:
    declared = {
        (method.upper(), path.removeprefix("/api/v1"))
        for path, methods in openapi.document()["paths"].items()
        for method in methods
    }
    assert declared == {*examples()}, "write it as this file's docstring says"


@pytest.mark.django_db
def test_api_015_each_example_is_answered_as_printed() -> None:
    sent = {name: one for name, one in examples().items() if name not in APART}
    with a_world_of_examples() as world:
        answers = {name: as_printed(world, one, answered(world, name, one)) for name, one in sent.items()}
    compare(sent, answers)


@pytest.mark.django_db(transaction=True)
def test_api_015_the_example_of_a_payment_by_card_is_answered_as_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_at(monkeypatch, "2026-04-15 10:00", of="portal.api.views")
    example = examples()[BY_CARD]
    with a_scenario(now=at("2026-04-15 10:00")) as scenario:
        scenario.save_card("4242424242424242")
        ann = door(a_person("ann@vision.example", scenario.lab), scenario.lab, moment=at("2026-04-01"))
        path = f"/invoices/{scenario.invoice.number}/payments"
        answer = ann.post(path, example.body, key="example-1")
        printed = answer.body | {"id": "att_…", "invoice": example.path.split("/")[2]}
    compare({BY_CARD: example}, {BY_CARD: (answer.status, printed)})


@pytest.mark.django_db
def test_api_015_the_example_of_an_e_invoice_is_answered() -> None:
    lab = a_public_buyer(a_cluster(complete_through="2026-04-20"))
    stories.close("2026-03")
    rendered(stories.invoice_of(lab, "2026-03"))
    ann = door(a_person("ann@vision.example", lab), lab)
    answer = ann.get(examples()[E_INVOICE].path)
    compare({E_INVOICE: examples()[E_INVOICE]}, {E_INVOICE: (answer.status, None)})
    assert answer.headers["Content-Type"] == "application/xml"


def answered(world: World, name: tuple[str, str], example: Example) -> Answer:
    """Sent by the owner of the tenant where a tenant's key may, else by the operator; undone."""
    route = name[1].removeprefix("/")
    by_tenant = {as_path(address.route): address.tenant
                 for address in ADDRESSES if address.method == name[0]}  # fmt: skip
    key = world.ann if by_tenant.get(route) or route == "me" else world.op
    if any(address.cluster and as_path(address.route) == route for address in ADDRESSES):
        cluster = world.house.cluster
        (scope,) = {
            address.cluster for address in ADDRESSES if address.cluster and as_path(address.route) == route
        }
        key = door(world.house.op, None, scope, cluster=cluster, moment=at("2026-04-01"))
    text = example.body if isinstance(example.body, str) or example.body is None else json.dumps(example.body)
    headers = {"Idempotency-Key": "example-1"} if name[0] == "POST" else {}
    with transaction.atomic():
        answer = key.send(
            name[0],
            world.asked(example.path),
            None if text is None else world.asked(text).encode(),
            **headers,
            **{"Content-Type": example.content_type},
        )
        transaction.set_rollback(True)
    return answer


def as_path(route: str) -> str:
    return re.sub(r"<\w+:(\w+)>", r"{\1}", route)


def as_printed(world: World, example: Example, answer: Answer) -> tuple[int, Any]:
    """Status and body; None of a file, and where there is none."""
    is_json = answer.raw and "json" in answer.headers.get("Content-Type", "")
    return answer.status, world.printed(answer.body) if is_json else None


def compare(sent: dict[tuple[str, str], Example], answers: dict[tuple[str, str], tuple[int, Any]]) -> None:
    if WRITES:
        stored = json.loads(FILE.read_text())
        for (method, path), (status, answer) in answers.items():
            entry = stored[f"{method} {path}"]
            entry |= {"status": status} | ({} if answer is None else {"answer": answer})
        FILE.write_text(json.dumps(dict(sorted(stored.items())), indent=1, ensure_ascii=False) + "\n")
    refused = [(*name, answer) for name, (status, answer) in answers.items() if status >= 400]
    assert refused == []
    assert WRITES or answers == {name: (one.status, one.answer) for name, one in sent.items()}


def test_api_015_examples_are_of_addresses_that_there_are() -> None:
    assert len(examples()) >= len(routes)
    assert all(one.path.startswith("/") and one.content_type for one in examples().values())
    assert any(one.content_type != JSON for one in examples().values())
