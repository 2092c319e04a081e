"""Op's scripts make tenants, people, plans and owners of accounts. Cases 11, 31, 33 and 40 of the API."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from billing.models import PeriodTotal, Plan, PlanVersion, Price, PriceCorrection, Subscription
from billing.rating import engine
from clusters.models import Account
from portal.core.audit.models import AuditEntry
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Membership, Ownership, Tenant
from tests import builders
from tests.api.door import Door
from tests.web.house import House

pytestmark = pytest.mark.django_db

CHEM = {"slug": "chem", "name": "Chemistry", "timezone": "Europe/Berlin", "country": "DE"}
PLAN = {
    "currency": "EUR",
    "charges": ["gpu"],
    "allowance": [{"name": "included", "hours": "10"}],
    "price": [
        {"meter": "gpu-hour", "unit_price": "1.50", "allowance": "included"},
        {
            "meter": "gpu-hour",
            "where": {"qos": ["low"]},
            "model": "graduated",
            "tiers": [{"up_to": "100", "unit_price": "1"}, {"unit_price": "0.5"}],
        },
    ],
}


def put(op: Door, path: str, body: object, **headers: str) -> dict[str, object]:
    answer = op.send("PUT", path, body, **headers)
    assert answer.status == 200, (path, answer.raw[:500])
    return dict(answer.body)


def test_api_031_put_makes_a_tenant_and_makes_it_the_same_again(op: Door) -> None:
    fields = {name: value for name, value in CHEM.items() if name != "slug"}
    first = put(op, "/tenants/chem", fields)
    entries = AuditEntry.objects.count()
    assert put(op, "/tenants/chem", fields) == first
    assert AuditEntry.objects.count() == entries
    assert (first["timezone"], first["payment_terms_days"], first["city"]) == ("Europe/Berlin", 14, "")


def test_api_031_put_replaces_and_patch_merges_and_null_clears(op: Door) -> None:
    op.writes("/tenants", CHEM | {"city": "Jena", "purchase_order": "PO 7"})
    changed = op.send("PATCH", "/tenants/chem", {"city": "Halle", "purchase_order": None}).body
    assert (changed["city"], changed["purchase_order"], changed["name"]) == ("Halle", "", "Chemistry")
    replaced = put(op, "/tenants/chem", {"name": "Chemistry"})
    assert (replaced["city"], replaced["timezone"], replaced["country"]) == ("", "UTC", "")
    assert (
        put(op, "/tenants/chem", {key: value for key, value in changed.items() if key != "slug"}) == changed
    )


def test_api_031_a_tenant_is_posted_once(op: Door) -> None:
    assert op.post("/tenants", CHEM).status == 201
    refused = op.post("/tenants", CHEM)
    assert refused.problem == (409, "conflict")
    assert "chem" in refused.body["detail"]


def test_api_011_nobodys_change_of_a_tenant_is_lost(op: Door) -> None:
    op.writes("/tenants", CHEM)
    tag = op.get("/tenants/chem").headers["ETag"]
    assert op.send("PATCH", "/tenants/chem", {"city": "Jena"}, **{"If-Match": tag}).status == 200
    stale = op.send("PUT", "/tenants/chem", {"name": "Other"}, **{"If-Match": tag})
    assert stale.problem == (412, "changed-meanwhile")
    assert op.reads("/tenants/chem")["city"] == "Jena"
    assert op.send("PUT", "/tenants/new", {"name": "New"}, **{"If-Match": tag}).status == 412


def test_api_033_a_previewed_tenant_is_not_kept(op: Door) -> None:
    assert op.writes("/tenants?dry_run=true", CHEM)["slug"] == "chem"
    assert put(op, "/tenants/chem?dry_run=true", {"name": "Chemistry"})["name"] == "Chemistry"
    assert not Tenant.objects.filter(slug="chem").exists()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"slug": "x y", "name": "X"}, "/"),
        ({"slug": "x", "name": "X", "colour": "red"}, "/colour"),
        ({"slug": "x", "name": "X", "anchor_day": 40}, "/anchor_day"),
        ({"slug": "x", "name": "X", "timezone": "Mars/Base"}, "/"),
        ({"slug": "x"}, None),
    ],
)
def test_api_005_a_wrong_tenant_is_refused_with_its_reason(
    op: Door, body: dict[str, object], pointer: str | None
) -> None:
    refused = op.post("/tenants", body)
    assert refused.status == (400 if pointer else 409), refused.raw
    if pointer:
        assert refused.body["errors"][0]["pointer"] == pointer
    assert not Tenant.objects.filter(slug="x").exists()


def test_api_040_people_are_let_in_change_their_role_and_leave(house: House, op: Door) -> None:
    path = "/tenants/speech-lab/members/ada@speech.example"
    assert put(op, path, {"role": "member"}) == {
        "email": "ada@speech.example",
        "role": "member",
        "scheduler_users": [],
    }
    assert put(op, path, {"role": "billing"})["role"] == "billing"
    assert Membership.objects.filter(tenant=house.speech, user__email="ada@speech.example").count() == 1
    assert op.send("PUT", path, {"role": "king"}).problem == (400, "invalid-request")
    assert [op.send("DELETE", path).status for _ in range(2)] == [204, 404]


def test_api_040_two_owners_at_once_are_refused_with_the_other_ones_name(house: House, op: Door) -> None:
    body = {"cluster": "gpu1", "account": "vision", "tenant": "speech-lab"}
    refused = op.post("/ownerships", body)
    assert refused.problem == (409, "refused")
    assert "belongs to vision-lab" in refused.body["detail"]
    with pytest.raises(CommandError) as by_command:
        call_command("assign_account", "gpu1", "vision", "speech-lab")
    assert str(by_command.value) == refused.body["detail"]


def test_api_040_an_account_changes_hands_at_a_moment(house: House, op: Door) -> None:
    body = {"cluster": "gpu1", "account": "vision", "tenant": "speech-lab", "since": "2026-05-01T00:00:00Z"}
    previewed = op.writes("/ownerships?dry_run=true", body)
    assert previewed["since"] == "2026-05-01T00:00:00Z"
    assert Ownership.objects.filter(account__name="vision").count() == 1
    row = op.writes("/ownerships", body)
    owners = [(one["tenant"], one["until"]) for one in op.reads("/ownerships?account=vision")["data"]]
    assert owners == [("vision-lab", "2026-05-01T00:00:00Z"), ("speech-lab", None)]
    message = OutboxMessage.objects.filter(task="billing.tasks.rate_accounts").latest("pk")
    assert message.kwargs == {"account_ids": [Account.objects.get(name="vision").pk]}
    ended = op.send("PATCH", f"/ownerships/{row['id']}", {"until": "2026-06-01T00:00:00Z"})
    assert ended.body["until"] == "2026-06-01T00:00:00Z"
    assert op.send("PATCH", f"/ownerships/{row['id']}", {"since": None}).problem == (409, "refused")
    assert [op.send("DELETE", f"/ownerships/{row['id']}").status for _ in range(2)] == [204, 404]


def test_api_040_a_plan_is_tried_published_and_then_read_only(house: House, op: Door) -> None:
    path = "/plans/deal/versions/2026-01-01"
    assert put(op, f"{path}?dry_run=true", PLAN)["published"] is False
    assert not Plan.objects.filter(name="deal").exists()
    version = put(op, path, PLAN)
    assert version["price"][1]["tiers"] == [  # type: ignore[index]
        {"up_to": "100", "unit_price": "1"}, {"up_to": None, "unit_price": "0.5"},
    ]  # fmt: skip
    assert put(op, path, version) == version
    cheaper = put(op, path, PLAN | {"price": [{"meter": "gpu-hour", "unit_price": "1"}], "allowance": []})
    assert [price["unit_price"] for price in cheaper["price"]] == ["1"]  # type: ignore[attr-defined]
    used = op.reads("/plans/vision-deal/versions/2017-01-01")
    assert put(op, "/plans/vision-deal/versions/2017-01-01", used) == used
    refused = op.send("PUT", "/plans/vision-deal/versions/2017-01-01", used | {"charges": ["gpu", "cpu"]})
    assert refused.problem == (409, "refused")
    assert "is in use, so it stays as it is" in refused.body["detail"]
    assert op.send("DELETE", "/plans/vision-deal/versions/2017-01-01").problem == (409, "refused")
    assert [op.send("DELETE", path).status for _ in range(2)] == [204, 404]


def test_api_040_a_price_for_one_tenant_stands_in_place_of_the_plans(house: House, op: Door) -> None:
    price = {"meter": "gpu-hour", "unit_price": "0.90", "tenant": "vision-lab", "from": "2026-05-01"}
    version = op.writes("/plans/vision-deal/prices", price)
    assert version["price"][-1]["tenant"] == "vision-lab"
    assert op.post("/plans/vision-deal/prices", price | {"tenant": None}).problem == (400, "invalid-request")
    assert op.post("/plans/vision-deal/prices", price | {"from": "2016-01-01"}).problem == (409, "conflict")


def test_api_040_a_price_in_use_is_corrected_with_a_reason(house: House, op: Door) -> None:
    path = "/plans/vision-deal/versions/2017-01-01"
    (price,) = op.reads(path)["price"]
    same = {name: price[name] for name in ("meter", "where", "from")} | {"unit_price": "2.75"}
    assert op.post(f"{path}/price-corrections", same).problem == (400, "invalid-request")
    why = {"correction": "as agreed in May"}
    version = op.writes(f"{path}/price-corrections", same | why, status=200)
    assert [row["unit_price"] for row in version["price"]] == ["2.75"]
    assert op.writes(f"{path}/price-corrections", same | why, status=200) == version
    assert PriceCorrection.objects.get().reason == "as agreed in May"
    others: list[dict[str, object]] = [{"where": {}}, {"from": "2017-02-01"}, {"meter": "cpu-core-hour"}]
    for other in others:
        answer = op.post(f"{path}/price-corrections", same | why | other)
        assert answer.status == 409, other
    assert op.post("/plans/vision-deal/versions/2016-01-01/price-corrections", same | why).status == 404
    assert not OutboxMessage.objects.filter(task="billing.tasks.rate_tenants").exists()


def test_api_040_a_payer_begins_and_ends(house: House, op: Door) -> None:
    row = op.writes("/payers", {"tenant": "speech-lab", "payer": "vision-lab", "since": "2026-05-01"})
    assert row["until"] is None
    again = {"tenant": "vision-lab", "payer": "vision-lab", "since": "2026-05-01"}
    assert op.post("/payers", again).problem == (409, "refused")
    ended = op.send("PATCH", f"/payers/{row['id']}", {"until": "2026-06-01"})
    assert ended.body["until"] == "2026-06-01"


def test_api_040_all_that_is_read_makes_the_same_prices_on_an_empty_instance(house: House, op: Door) -> None:
    put(op, "/plans/vision-next/versions/2026-01-01", PLAN | {"currency": "USD"})
    put(op, "/tenants/vision-lab/subscriptions", {
        "phase": [{"plan": "vision-deal", "from": "2017-01-01"}, {"plan": "vision-next", "from": "2026-04-01"}],
    })  # fmt: skip
    tenants, plans = op.all("/tenants"), op.all("/plans")
    versions = [version for plan in plans for version in op.all(f"/plans/{plan['name']}/versions")]
    phases = {row["slug"]: op.reads(f"/tenants/{row['slug']}/subscriptions") for row in tenants}
    owners = op.all("/ownerships")
    before = rated("vision-lab")
    suffixed = {row["slug"]: f"{row['slug']}-2" for row in tenants}
    for row in tenants:
        put(op, f"/tenants/{suffixed[row['slug']]}", {key: row[key] for key in row if key != "slug"})
    for version in versions:
        name = f"{version['name']}-2"
        put(op, f"/plans/{name}/versions/{version['from']}", version | {"name": name})
    for slug, body in phases.items():
        renamed = [phase | {"plan": f"{phase['plan']}-2"} for phase in body["phase"]]
        put(op, f"/tenants/{suffixed[slug]}/subscriptions", {"phase": renamed})
    other = builders.a_cluster("gpu2")
    for row in owners:
        owned = {key: row[key] for key in ("account", "project", "since", "until")}
        op.writes("/ownerships", owned | {"cluster": "gpu2", "tenant": suffixed[row["tenant"]]})
    builders.ingest(
        other,
        builders.a_job(job_id="17", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 13:00"),
        builders.a_job(job_id="18", user="ada", started="2026-03-03 10:00", ended="2026-03-03 10:30"),
    )
    engine.rate_tenants(Tenant.objects.filter(slug="vision-lab-2"))
    assert rated("vision-lab-2") == before
    assert before


def rated(slug: str) -> list[tuple[int, str]]:
    """Seconds and prices of a tenant's usage."""
    totals = PeriodTotal.objects.filter(tenant__slug=slug).exclude(price_id=None)
    prices = Price.objects.in_bulk(totals.values_list("price_id", flat=True))
    return sorted((int(row.units), str(prices[row.price_id].unit_price)) for row in totals if row.price_id)


def test_a_tenant_from_nothing_has_its_plan(op: Door) -> None:
    op.writes("/tenants", CHEM)
    put(op, "/plans/deal/versions/2026-01-01", PLAN)
    body = {"phase": [{"plan": "deal", "from": "2026-01-01"}]}
    phase = {"plan": "deal", "from": "2025-12-31T23:00:00Z", "until": None}
    assert put(op, "/tenants/chem/subscriptions", body) == {"phase": [phase]}
    assert Subscription.objects.get(tenant__slug="chem").plan.name == "deal"
    unknown = {"phase": [{"plan": "none", "from": "2026-01-01"}]}
    assert op.send("PUT", "/tenants/chem/subscriptions", unknown).problem == (409, "refused")
    assert PlanVersion.objects.filter(plan__name="deal").count() == 1
