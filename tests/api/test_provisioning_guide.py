"""The requests of docs/how-to/provision-tenants.md, sent as they are printed, twice. Cases 15 and 40 of the API."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from billing.models import Invoice, RatedUsage
from clusters.models import Account, Cluster
from portal.api.models import ApiKey
from portal.core.outbox import outbox
from portal.env import ROOT
from tests import builders, stories
from tests.api.door import Answer, Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db

GUIDE = ROOT / "docs" / "how-to" / "provision-tenants.md"


def requests() -> list[list[str]]:
    """The words of each command."""
    blocks = re.findall(r"```\n(curl .*?)```", GUIDE.read_text(), re.DOTALL)
    return [shlex.split(block.replace("\\\n", " ")) for block in blocks]


def send(op: Door, words: list[str]) -> Answer:
    options: dict[str, list[str]] = {}
    rest = iter(words[1:])
    url = ""
    for word in rest:
        if word.startswith("-"):
            options.setdefault(word, []).append(next(rest))
        else:
            url = word
    headers = dict(header.split(": ", 1) for header in options.get("-H", []))
    assert headers.pop("Authorization") == "Bearer $KEY"
    headers.pop("Content-Type", None)
    body = json.loads(options["-d"][0]) if "-d" in options else None
    return op.send(options.get("-X", ["GET"])[0], url.removeprefix("$URL/api/v1"), body, **headers)


def test_api_040_a_tenant_is_provisioned_from_nothing_and_billed() -> None:
    builders.a_seller()
    scopes = ("ops:read", "tenants:write", "plans:write", "clusters:write")
    op = door(builders.an_operator(), None, *scopes)
    first = [send(op, words) for words in requests()]
    assert {answer.status for answer in first} <= {200, 201}, [answer.raw for answer in first]
    again = [send(op, words) for words in requests()]
    assert [answer.status for answer in again] == [answer.status for answer in first]
    assert (ApiKey.objects.filter(tenant__slug="chemistry").count(), Account.objects.count()) == (1, 1)
    (ownership,) = first[-1].body["data"]
    assert (ownership["account"], ownership["since"]) == ("chem", "2025-12-31T23:00:00Z")
    key = Door(next(answer.body["secret"] for answer in first if "secret" in answer.body))
    assert key.reads("/me")["tenant"] == "chemistry"
    job = builders.a_job(
        job_id="1", account="chem", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 13:00"
    )
    builders.ingest(Cluster.objects.get(name="gpu1"), job, as_of="2026-04-20")
    outbox.drain()
    assert RatedUsage.objects.exists()
    stories.close("2026-03")
    (invoice,) = key.reads("/invoices")["data"]
    assert invoice["subtotal"] == {"amount": "9.00", "currency": "EUR"}
    assert Invoice.objects.get().tenant.slug == "chemistry"


def test_a_key_that_an_operator_makes_only_reads(house: House, op: Door) -> None:
    body = {"member": house.ann.email, "name": "report", "scopes": ["invoices:read"]}
    made = op.writes("/tenants/vision-lab/keys", body, key="k")
    assert Door(made["secret"]).reads("/me")["scopes"] == ["invoices:read"]
    repeated = op.post("/tenants/vision-lab/keys", body, key="k").body
    assert (repeated["secret"], repeated["id"]) == (None, made["id"])
    pays = op.post("/tenants/vision-lab/keys", body | {"scopes": ["payments:write"]})
    assert pays.problem == (400, "invalid-request")
    stranger = op.post("/tenants/vision-lab/keys", body | {"member": house.eve.email})
    assert stranger.problem == (400, "invalid-request")
    too_much = op.post("/tenants/vision-lab/keys", body | {"member": house.ben.email})
    assert too_much.problem == (409, "refused")
    assert too_much.body["detail"] == (
        "The role of ben@vision.example does not allow invoices:read, so a key of theirs cannot have it."
    )
