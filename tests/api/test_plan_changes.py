"""An owner's plan and departure: page, command and API do and refuse the same, by the same sentences."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from billing.catalog import subscriptions
from billing.models import Departure, Plan, Subscription
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Ownership
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House, signed_in
from tests.web.sign_up_stories import offer_plans

pytestmark = pytest.mark.django_db

TODAY = datetime.now(UTC).date()
SOON, LATER = f"{TODAY + timedelta(days=30)}", f"{TODAY + timedelta(days=500)}"


def test_ann_reads_the_offer_plans_a_change_and_takes_it_back_through_any_door(
    house: House, ann: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    none = ann.reads("/plan-choices")
    assert (none["plan"], none["offered"]) == (None, [])
    assert none["reason"].startswith("Your plan was agreed with the operator")
    offer_plans(house)
    builders.a_plan("secret-deal", "USD", prices=[("gpu-hour", {}, "0.01", builders.LONG_AGO)])
    choices = ann.reads("/plan-choices")
    assert (choices["plan"], choices["offered"], choices["planned"]) == (
        "vision-deal", ["growth", "starter"], None,
    )  # fmt: skip
    assert ann.get("/plan-choices/secret-deal").problem == (404, "not-found")
    preview = ann.reads("/plan-choices/starter")
    assert preview["present_terms"]["price"][0]["unit_price"] == "2"
    assert preview["offered_terms"]["price"][0]["unit_price"] == "1.5"
    tried = ann.send("PUT", "/plan-change?dry_run=true", {"plan": "starter"})
    assert tried.body == {"plan": "starter", "since": choices["begins_at"]}
    assert ann.get("/plan-change").status == 404
    other = ann.send("PUT", "/plan-change", {"plan": "starter", "seen": "another"})
    assert other.problem == (409, "refused")
    assert "changed since the preview" in other.body["detail"]
    wish = {"plan": "starter", "seen": preview["seen"]}
    assert [ann.send("PUT", "/plan-change", wish).body for _twice in range(2)] == [tried.body] * 2
    assert "growth" in signed_in(house.ann).get("/t/vision-lab/plan/change/?plan=growth").text
    call_command("change_plan", "vision-lab", "growth")  # in its place
    assert ann.reads("/plan-change")["plan"] == "growth"
    capsys.readouterr()
    call_command("change_plan", "vision-lab", "starter", "--dry-run", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["planned"]["plan"], printed["last_period"]) == ("starter", preview["last_period"])
    assert ann.reads("/plan-change")["plan"] == "growth"
    assert ann.send("DELETE", "/plan-change").status == 204
    assert ann.send("DELETE", "/plan-change").status == 404
    assert Subscription.objects.get(tenant=house.vision).until is None
    history = AuditEntry.objects.filter(table="billing_subscription", tenant_id=house.vision.pk)
    assert {"PUT", "DELETE"} == {row.through.split()[1] for row in history if row.through.startswith("API")}


def test_ann_asks_to_leave_and_op_ends_the_service_through_any_door(
    house: House, ann: Door, op: Door
) -> None:
    asked = ann.send("PUT", "/departure", {"leaves_on": SOON, "reason": "We move."}).body
    assert asked["asked_by"].startswith("ann@vision.example (API key")
    assert (asked["leaves_on"], ann.reads("/departure")) == (SOON, asked)
    assert "We move." in signed_in(house.op).get("/operator/sign-ups/").text
    assert ann.send("DELETE", "/departure").status == 204
    (past,) = op.all("/departures")
    call_command("ask_to_leave", "vision-lab", SOON, "--reason", "Said on the phone.")
    (row,) = op.all("/departures?open=true&tenant=vision-lab")
    assert (row["reason"], len(op.all("/departures"))) == ("Said on the phone.", 2)
    end = f"/departures/{row['id']}/endings"
    tried = op.writes(f"{end}?dry_run=true", {})
    assert (tried["ended_at"] is not None, Ownership.objects.get(tenant=house.vision).until) == (True, None)
    call_command("let_leave", "vision-lab", "--dry-run")
    assert op.post(f"/departures/{past['id']}/endings", {}, key="past").problem == (409, "refused")
    assert Departure.objects.filter(ended_at=None).count() == 2
    done = op.writes(end, {"reason": "Agreed."}, key="end")
    assert done["ended_at"]
    assert Ownership.objects.get(tenant=house.vision).until is not None
    assert AuditEntry.objects.filter(table="billing_departure", why="Agreed.").exists()
    with pytest.raises(CommandError, match="has not asked to leave"):
        call_command("let_leave", "vision-lab")
    call_command("ask_to_leave", "vision-lab", SOON)
    call_command("ask_to_leave", "vision-lab", "--stay")
    assert ann.get("/departure").status == 404


Refused = tuple[dict[str, str], tuple[str, ...], tuple[str, str, dict[str, str]]]
REFUSED: dict[str, Refused] = {
    "Plan secret-deal is not offered": (
        {"act": "change", "plan": "secret-deal"},
        ("change_plan", "vision-lab", "secret-deal"),
        ("PUT", "/plan-change", {"plan": "secret-deal"}),
    ),
    "You are on plan vision-deal already": (
        {"act": "change", "plan": "vision-deal"},
        ("change_plan", "vision-lab", "vision-deal"),
        ("PUT", "/plan-change", {"plan": "vision-deal"}),
    ),
    "Enter a day from tomorrow on": (
        {"act": "leave", "leaves_on": LATER},
        ("ask_to_leave", "vision-lab", LATER),
        ("PUT", "/departure", {"leaves_on": LATER}),
    ),
}
BY_OP: dict[str, Refused] = {
    "The operator has planned a change to plan secret-deal already": (
        {"act": "change", "plan": "growth"},
        ("change_plan", "vision-lab", "growth"),
        ("PUT", "/plan-change", {"plan": "growth"}),
    ),
    "The operator has planned a change to plan secret-deal already: ask": (
        {"act": "stay"},
        ("change_plan", "vision-lab", "--stay"),
        ("DELETE", "/plan-change", {}),
    ),
}


def check_refused(house: House, ann: Door, table: dict[str, Refused]) -> None:
    for words, (form, command, (method, path, body)) in table.items():
        page = signed_in(house.ann).post("/t/vision-lab/plan/choose/", form, follow=True)
        assert words in unescape(page.text)
        with pytest.raises(CommandError, match=words):
            call_command(*command)
        refused = ann.send(method, path, body or None)
        assert refused.problem == (409, "refused"), words
        assert words in refused.body["detail"]


def test_what_one_door_refuses_all_refuse_with_the_same_sentence(house: House, ann: Door) -> None:
    offer_plans(house)
    secret = builders.a_plan("secret-deal", "USD")
    check_refused(house, ann, REFUSED)
    begins = datetime.fromisoformat(ann.reads("/plan-choices")["begins_at"])
    subscriptions.subscribe(tenant=house.vision, plan=secret, since=begins)
    check_refused(house, ann, BY_OP)
    assert Subscription.objects.filter(plan=secret).count() == 1
    assert not Departure.objects.exists()


def test_only_owners_decide_about_the_plan(house: House) -> None:
    offer_plans(house)
    for person in (house.ben, house.carla):
        for path in ("/plan-choices", "/plan-choices/starter", "/plan-change", "/departure"):
            assert door(person, house.vision).get(path).status == 403
    eve = door(house.eve, house.speech)  # on a plan that was agreed
    assert eve.get("/plan-choices/vision-deal").status == 404
    assert eve.send("PUT", "/plan-change", {"plan": "starter"}).problem == (409, "refused")
    assert Plan.objects.get(name="speech-deal").subscriptions.get().until is None
