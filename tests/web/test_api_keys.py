"""Ann makes keys for her scripts in the portal, Op for hers; a secret is shown once. Cases 16 to 20 of the API."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from portal.api.models import ApiKey
from portal.core.audit.models import AuditEntry
from tests import sharing
from tests.api.door import Door
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

PAGE = "/t/vision-lab/api-keys/"
OPERATORS = "/operator/api-keys/"


begun, house = sharing.fixtures(a_house, "house")


def acts(browser: Client, path: str, **fields: object) -> str:
    """The page that follows a form."""
    response = browser.post(path, fields, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def shown(text: str) -> str:
    found = re.search(r"ct_live_[0-9A-Za-z]{57}", text)
    return found[0] if found else ""


def creates(browser: Client, **fields: object) -> str:
    values = {"act": "create", "name": "finance export", "scopes": ["invoices:read", "usage:read"]} | fields
    return acts(browser, PAGE + "change/", **values)


def test_ann_makes_a_key_and_sees_it_once(house: House) -> None:
    ann = signed_in(house.ann)
    assert "No keys yet" in page(house.ann, PAGE)
    secret = shown(creates(ann))
    assert secret
    assert Door(secret).get("/invoices").status == 200
    again = ann.get(PAGE).content.decode()
    assert shown(again) == ""
    assert f"ct_live_{secret[8:16]}…" in again
    assert "finance export" in again
    assert secret not in "".join(Session.objects.values_list("session_data", flat=True))
    entry = AuditEntry.objects.of_table(ApiKey).get()
    assert (entry.who, entry.through) == ("ann@vision.example", f"page {PAGE}change/")


def test_ann_rotates_and_revokes(house: House) -> None:
    ann = signed_in(house.ann)
    old = shown(creates(ann))
    key = ApiKey.objects.get()
    new = shown(acts(ann, PAGE + "change/", act="rotate", key=key.pk))
    assert [Door(each).get("/me").status for each in (old, new)] == [200, 200]
    text = acts(ann, PAGE + "change/", act="revoke", key=key.pk)
    assert "finance export is revoked." in text
    assert "Revoked" in text
    assert [Door(each).get("/me").status for each in (old, new)] == [401, 401]


def test_what_cannot_be_made_is_said_in_a_sentence(house: House) -> None:
    ann = signed_in(house.ann)
    assert "would have expired already" in creates(ann, expires_on="2020-01-01")
    assert "Scopes:" in creates(ann, scopes=["ops:read"])
    assert "Name:" in creates(ann, name="")
    assert "in one line" in creates(ann, name="evil\nBcc: x@y.example")
    assert not ApiKey.objects.exists()


def test_a_key_of_one_project_for_a_script_that_needs_no_more(house: House) -> None:
    ann = signed_in(house.ann)
    secret = shown(creates(ann, scopes=["jobs:read"], project="vision", is_service="on"))
    me = Door(secret).reads("/me")
    assert (me["project"], me["is_service"], me["scopes"]) == ("vision", True, ["jobs:read"])


def test_only_owners_open_the_page_and_only_their_own_keys_are_there(house: House) -> None:
    ann = signed_in(house.ann)
    creates(ann)
    for person in (house.ben, house.carla, house.eve):
        assert signed_in(person).get(PAGE).status_code == 404
        assert signed_in(person).post(PAGE + "change/", {"act": "create"}).status_code == 404
    eve = signed_in(house.eve)
    theirs = eve.post("/t/speech-lab/api-keys/change/", {"act": "revoke", "key": ApiKey.objects.get().pk})
    assert theirs.status_code == 404
    assert ApiKey.objects.get().revoked_at is None


def test_op_makes_keys_of_her_own(house: House) -> None:
    op = signed_in(house.op)
    assert "No keys yet" in op.get(OPERATORS).content.decode()
    secret = shown(acts(op, OPERATORS, act="create", name="BI", scopes=["ops:read"]))
    assert len(Door(secret).all("/invoices")) == 2
    assert signed_in(house.ann).get(OPERATORS).status_code == 404


def test_live_keys_are_listed_before_revoked_ones(house: House) -> None:
    ann = signed_in(house.ann)
    creates(ann, name="live one")
    creates(ann, name="old one")
    acts(ann, PAGE + "change/", act="revoke", key=ApiKey.objects.get(name="old one").pk)
    text = page(house.ann, PAGE)
    assert text.index("live one") < text.index("old one")


def test_what_could_not_be_shown_is_not_made(house: House, settings: Any) -> None:
    ann = signed_in(house.ann)
    secret = shown(creates(ann))
    settings.CLUSTERTAB_SECRET_KEYS = []
    text = acts(ann, PAGE + "change/", act="rotate", key=ApiKey.objects.get().pk)
    assert "There is no key for stored secrets" in text
    assert Door(secret).get("/me").status == 200
