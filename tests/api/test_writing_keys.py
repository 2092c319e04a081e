"""Ann's script makes, changes, rotates and revokes keys. Cases 11, 17 to 20, 23, 28, 31 and 33 of the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core import mail
from django.test import override_settings

from portal.api import tasks
from portal.api.models import ApiKey, IdempotentRequest
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Membership, Role
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db

NEW = {"name": "finance export", "scopes": ["invoices:read"]}
TWO_LINES = "evil\nBcc: x@y.example"
BRIEF = datetime(2190, 1, 1, tzinfo=UTC)


def test_api_020_a_key_is_made_rotated_and_revoked(ann: Door) -> None:
    made = ann.writes("/keys", NEW)
    first = Door(made["secret"])
    assert first.reads("/me")["scopes"] == ["invoices:read"]
    rotated = ann.writes(f"/keys/{made['id']}/rotations", {"overlap_hours": 1})
    second = Door(rotated["secret"])
    assert [key.get("/me").status for key in (first, second)] == [200, 200]
    listed = ann.reads("/keys")["data"]
    assert [row["name"] for row in listed] == ["finance export", "script"]
    assert "secret" not in listed[0]
    assert listed[0]["used_at"] is not None
    assert listed[0]["previous_used_at"] is not None
    assert ann.send("DELETE", f"/keys/{made['id']}").status == 204
    assert [key.get("/me").status for key in (first, second)] == [401, 401]


def test_api_031_deleted_twice_is_204_then_404(ann: Door) -> None:
    made = ann.writes("/keys", NEW)
    assert [ann.send("DELETE", f"/keys/{made['id']}").status for _ in range(2)] == [204, 404]
    assert ann.reads(f"/keys/{made['id']}")["revoked_at"] is not None


def test_api_031_patch_changes_what_is_given_and_null_clears(ann: Door) -> None:
    made = ann.writes("/keys", NEW | {"expires_at": "2199-01-01T00:00:00Z"})
    path = f"/keys/{made['id']}"
    renamed = ann.send("PATCH", path, {"name": "export"}).body
    assert (renamed["name"], renamed["expires_at"]) == ("export", "2199-01-01T00:00:00Z")
    assert ann.send("PATCH", path, {"expires_at": None}).body["expires_at"] is None
    assert ann.send("PATCH", path, {"scopes": ["jobs:read"]}).problem == (400, "invalid-request")
    assert ann.send("PATCH", path, {"expires_at": "2001-01-01T00:00:00Z"}).problem == (409, "refused")


def test_api_011_a_change_of_a_state_that_is_gone_is_refused(ann: Door) -> None:
    path = f"/keys/{ann.writes('/keys', NEW)['id']}"
    tag = ann.get(path).headers["ETag"]
    assert ann.get(path, **{"If-None-Match": tag}).status == 304
    changed = ann.send("PATCH", path, {"name": "first"}, **{"If-Match": tag})
    assert changed.status == 200
    assert ann.send("PATCH", path, {"name": "second"}, **{"If-Match": tag}).problem == (
        412,
        "changed-meanwhile",
    )
    assert ann.send("DELETE", path, **{"If-Match": tag}).problem == (412, "changed-meanwhile")
    assert ann.reads(path)["name"] == "first"
    assert ann.send("DELETE", path, **{"If-Match": changed.headers["ETag"]}).status == 204


def test_api_018_a_key_gives_nothing_that_it_does_not_have(house: House, ann: Door) -> None:
    narrow = door(house.ann, house.vision, "keys:write", "jobs:read")
    assert narrow.writes("/keys", {"name": "jobs", "scopes": ["jobs:read"]})["scopes"] == ["jobs:read"]
    assert narrow.post("/keys", NEW).problem == (409, "refused")
    other_key = ann.writes("/keys", NEW)
    assert narrow.post(f"/keys/{other_key['id']}/rotations", {"overlap_hours": 0}).problem == (409, "refused")


def test_api_018_a_key_that_ends_makes_none_that_lasts(house: House) -> None:
    brief = door(house.ann, house.vision, expires_at=BRIEF)
    assert brief.post("/keys", NEW).problem == (409, "refused")
    assert brief.post("/keys", NEW | {"expires_at": "2190-01-01T00:00:01Z"}).problem == (409, "refused")
    assert brief.post("/keys", NEW | {"expires_at": "2190-01-01T00:00:00Z"}).status == 201


def test_api_018_a_key_that_ends_makes_neither_itself_nor_another_secret_last(
    house: House, ann: Door
) -> None:
    brief = door(house.ann, house.vision, expires_at=BRIEF)
    lasting, own = (f"/keys/{row['id']}" for row in reversed(ann.reads("/keys")["data"]))
    for later in (None, "2190-01-01T00:00:01Z"):
        assert brief.send("PATCH", own, {"expires_at": later}).problem == (409, "refused")
    assert brief.post(f"{lasting}/rotations", {"overlap_hours": 0}).problem == (409, "refused")
    assert [ann.reads(path)["expires_at"] for path in (lasting, own)] == [None, "2190-01-01T00:00:00Z"]
    assert brief.send("PATCH", lasting, {"name": "renamed"}).body["expires_at"] is None
    sooner_than_never = {"expires_at": "2191-01-01T00:00:00Z"}
    assert brief.send("PATCH", lasting, sooner_than_never).status == 200
    assert brief.send("PATCH", lasting, {"expires_at": "2189-01-01T00:00:00Z"}).status == 200
    assert brief.send("PATCH", lasting, {"expires_at": "2190-01-01T00:00:00Z"}).status == 200
    assert brief.post(f"{lasting}/rotations", {"overlap_hours": 0}).status == 201
    assert brief.post(f"{own}/rotations", {"overlap_hours": 0}).status == 201


def test_api_018_only_who_has_its_scopes_moves_the_end_of_a_key_on(house: House, ann: Door) -> None:
    narrow = door(house.ann, house.vision, "keys:write", "jobs:read")
    path = f"/keys/{ann.writes('/keys', NEW | {'expires_at': '2190-01-01T00:00:00Z'})['id']}"
    assert narrow.send("PATCH", path, {"expires_at": None}).problem == (409, "refused")
    assert narrow.send("PATCH", path, {"expires_at": "2189-01-01T00:00:00Z"}).status == 200
    assert ann.send("PATCH", path, {"expires_at": None}).body["expires_at"] is None


def test_api_018_an_operators_key_that_ends_gives_no_tenant_one_that_lasts(house: House) -> None:
    brief, path = door(house.op, None, expires_at=BRIEF), "/tenants/vision-lab/keys"
    new = NEW | {"member": house.ann.email}
    assert brief.post(path, new).problem == (409, "refused")
    assert brief.post(path, new | {"expires_at": "2190-01-01T00:00:00Z"}).status == 201


def test_api_017_whoever_manages_no_tenant_makes_no_key(house: House, ann: Door) -> None:
    ben = door(house.ben, house.vision)
    assert ben.post("/keys", NEW).problem == (403, "missing-scope")
    Membership.objects.filter(user=house.ann).update(role=Role.BILLING)
    assert ann.post("/keys", NEW).problem == (403, "missing-scope")


def test_api_019_keys_of_another_tenant_do_not_exist(house: House, ann: Door) -> None:
    made = ann.writes("/keys", NEW)
    eve = door(house.eve, house.speech)
    path = f"/keys/{made['id']}"
    assert eve.get(path).problem == (404, "not-found")
    assert eve.send("PATCH", path, {"name": "mine"}).problem == (404, "not-found")
    assert eve.send("DELETE", path).problem == (404, "not-found")
    assert eve.post(path + "/rotations", {"overlap_hours": 0}).problem == (404, "not-found")
    assert Door(made["secret"]).get("/me").status == 200


def test_api_028_a_secret_is_neither_stored_nor_sent_again(ann: Door) -> None:
    first, again = (ann.post("/keys", NEW, key="one") for _ in range(2))
    assert (first.status, again.status) == (201, 201)
    assert first.body["secret"].startswith("ct_live_")
    assert again.body == first.body | {"secret": None}
    assert again.headers["Idempotent-Replayed"] == "true"
    assert first.body["secret"].encode() not in bytes(IdempotentRequest.objects.get().body)
    assert ApiKey.objects.filter(name="finance export").count() == 1


@pytest.mark.parametrize("empty", ["", " "])
def test_api_028_an_empty_idempotency_key_is_not_none(ann: Door, empty: str) -> None:
    """A script whose variable is empty sends it again, and is to make no second key by it."""
    refused = [ann.post("/keys", NEW, **{"Idempotency-Key": empty}) for _ in range(2)]
    assert {answer.problem for answer in refused} == {(400, "invalid-request")}
    assert "1 to 255 printable characters" in refused[0].body["detail"]
    assert not ApiKey.objects.filter(name="finance export").exists()


def test_api_030_a_refusal_is_stored_and_mended_input_wants_a_new_key(ann: Door) -> None:
    wrong = NEW | {"scopes": ["nothing:read"]}
    refused = ann.post("/keys", wrong, key="two")
    assert refused.problem == (400, "invalid-request")
    assert refused.body["errors"][0]["pointer"] == "/scopes/0"
    assert ann.post("/keys", wrong, key="two").headers["Idempotent-Replayed"] == "true"
    assert ann.post("/keys", NEW, key="two").problem == (422, "key-reused")
    assert ann.post("/keys", NEW, key="three").status == 201


def test_api_029_eves_equal_key_is_another_one(house: House, ann: Door) -> None:
    assert ann.post("/keys", NEW, key="same").status == 201
    answer = door(house.eve, house.speech).post("/keys", NEW, key="same")
    assert (answer.status, answer.headers.get("Idempotent-Replayed")) == (201, None)


def test_api_033_a_preview_keeps_nothing(ann: Door) -> None:
    before, entries = ApiKey.objects.count(), AuditEntry.objects.count()
    previewed = ann.writes("/keys?dry_run=true", NEW, key="four")
    assert previewed["name"] == "finance export"
    assert (ApiKey.objects.count(), AuditEntry.objects.count()) == (before, entries)
    assert not IdempotentRequest.objects.exists()
    assert Door(previewed["secret"]).get("/me").status == 401


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/name"), (NEW | {"scope": []}, "/scope"), (NEW | {"scopes": []}, "/scopes"),
        (NEW | {"name": 7.5}, None), (NEW | {"expires_at": "2030-01-01T00:00:00"}, "/expires_at"),
        (NEW | {"scopes": "invoices:read"}, "/scopes"), ([], "/"), ("x", "/"), (NEW | {"name": "a\0b"}, None),
        (NEW | {"name": TWO_LINES}, "/name"),
    ],
)  # fmt: skip
def test_api_005_a_wrong_field_is_named(ann: Door, body: Any, pointer: str | None) -> None:
    refused = ann.post("/keys", body)
    assert refused.problem == (400, "invalid-request")
    if pointer is not None:
        assert refused.body["errors"][0]["pointer"] == pointer


def test_api_023_the_owners_are_mailed_of_a_new_key_once(house: House, ann: Door) -> None:
    made = ann.writes("/keys", NEW)
    with override_settings(CLUSTERTAB_SENDS_MAIL=True):
        assert tasks.announce_keys() == 2
        assert tasks.announce_keys() == 0
    letter = next(letter for letter in mail.outbox if "finance export" in letter.subject)
    assert letter.to == [house.ann.email]
    assert made["prefix"] in letter.body
    assert made["secret"] not in letter.body
    assert made["secret"][16:] not in letter.body


def test_api_023_no_key_is_renamed_to_two_lines(house: House, ann: Door, op: Door) -> None:
    path = f"/keys/{ann.writes('/keys', NEW)['id']}"
    renamed = ann.send("PATCH", path, {"name": TWO_LINES})
    assert (renamed.problem, renamed.body["errors"][0]["pointer"]) == ((400, "invalid-request"), "/name")
    body = NEW | {"member": house.ann.email, "name": TWO_LINES}
    refused = op.post("/tenants/vision-lab/keys", body)
    assert (refused.problem, refused.body["errors"][0]["pointer"]) == ((400, "invalid-request"), "/name")
    assert not ApiKey.objects.filter(name__contains="evil").exists()


def test_api_023_a_key_of_two_lines_from_before_they_were_refused_is_mailed(house: House, ann: Door) -> None:
    ann.writes("/keys", NEW)
    ApiKey.objects.filter(name="finance export").update(name=f"{TWO_LINES}\n\nAll is well.")
    with override_settings(CLUSTERTAB_SENDS_MAIL=True):
        assert tasks.announce_keys() == 2
    letter = next(letter for letter in mail.outbox if "evil" in letter.subject)
    assert letter.subject == "New API key: evil Bcc: x@y.example All is well."
    assert letter.message()["Bcc"] is None
    assert "“evil Bcc: x@y.example All is well.”" in letter.body


def test_api_023_of_an_operators_key_the_admins_are_mailed(house: House, op: Door) -> None:
    with override_settings(CLUSTERTAB_SENDS_MAIL=True):
        tasks.announce_keys()
    assert [letter.to for letter in mail.outbox] == [[house.op.email]]
