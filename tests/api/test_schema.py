"""The schema: valid, complete, and the one that is committed. Cases 14 and 15 of the API."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from portal.api import openapi
from portal.api.published import published
from portal.api.routes import routes
from portal.env import ROOT
from tests.api.door import Door
from tests.api.schema_breaks import breaks

ACCEPTED = {
    r"(/me: answer/(tenant|project)|/dunning-pauses: answer.*/invoice|/subscriptions: .*/until): its type is null or "
    r"string, and was string": "null was answered before, too",
    r"price-corrections: it is not answered with 201 any more": "it never was; the schema had it wrong",
}
"""Breaks since the last version of main, with the reason why programs do not mind; none once there is a release."""


def test_api_014_the_schema_is_valid_openapi_3_1() -> None:
    document = openapi.document()
    assert document["openapi"] == "3.1.0"
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    assert "nullable" not in json.dumps(document)


def test_api_014_the_committed_schema_is_what_the_code_says() -> None:
    """`./run manage openapi > docs/reference/openapi.json` after a change."""
    assert json.loads(published()) == openapi.document()


def test_api_014_every_address_is_in_the_schema_with_its_scope_and_errors() -> None:
    paths = openapi.document()["paths"]
    ours = {"/api/v1/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(route.pattern)) for route in routes}
    assert {*paths} == ours
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert {"400", "401", "403", "404", "429", "500", "503"} <= {*operation["responses"]}, (
                method,
                path,
            )
            if path != "/api/v1/me":
                assert "Scope: `" in operation["description"], (method, path)


@pytest.mark.django_db
def test_api_014_the_schema_needs_no_key() -> None:
    answer = Door("").get("/openapi.json")
    assert (answer.status, answer.body) == (200, openapi.document())


def git(*words: str) -> str:
    """What it prints; "" where it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def version_before() -> str:
    """Main's last version before this one: where this branch began, on main the commit before."""
    head, began = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "main")
    return began if began and began != head else git("rev-parse", "HEAD~1")


def test_api_013_the_schema_breaks_no_program_that_the_last_version_served() -> None:
    before = git("show", f"{version_before()}:docs/reference/openapi.json")
    if not before:
        pytest.skip("no history here: the schema of the version before is not known")
    found = breaks(json.loads(before), openapi.document())
    assert [one for one in found if not any(re.search(pattern, one) for pattern in ACCEPTED)] == []


INVOICES, NEW_KEY = ("/api/v1/invoices", "get"), ("/api/v1/keys", "post")


def of(document: Any, operation: tuple[str, str]) -> Any:
    return document["paths"][operation[0]][operation[1]]


def rename(document: Any) -> None:
    document["paths"]["/api/v1/bills"] = document["paths"].pop("/api/v1/invoices")


def need(document: Any) -> None:
    of(document, INVOICES)["parameters"][0]["required"] = True


def drop_field(document: Any) -> None:
    del document["components"]["schemas"]["Invoice"]["properties"]["due"]


def retype(document: Any) -> None:
    document["components"]["schemas"]["Invoice"]["properties"]["issued_on"]["type"] = [
        "string",
        "null",
        "integer",
    ]


def need_field(document: Any) -> None:
    document["components"]["schemas"]["KeyFields"]["required"] += ["project"]


def narrow(document: Any) -> None:
    kind = next(one for one in of(document, INVOICES)["parameters"] if one["name"] == "kind")
    kind["schema"]["items"]["enum"].remove("credit-note")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename, "GET /api/v1/invoices: it is gone"),
        (need, "is required"),
        (drop_field, "GET /api/v1/invoices: answer/data/-/due: it is gone"),
        (retype, "answer/data/-/issued_on: its type is integer or null or string"),
        (need_field, "POST /api/v1/keys: body/project: it is required"),
        (narrow, "parameter kind: credit-note is not taken any more"),
    ],
)
def test_api_013_a_break_is_found_and_an_addition_is_none(change: Callable[[Any], None], words: str) -> None:
    document = json.loads(json.dumps(openapi.document()))
    changed = copy.deepcopy(document)
    change(changed)
    assert any(words in one for one in breaks(document, changed)), breaks(document, changed)
    assert change is retype or breaks(changed, changed) == []


def test_api_013_what_is_added_breaks_nothing() -> None:
    smaller = json.loads(json.dumps(openapi.document()))
    del smaller["paths"]["/api/v1/forecast"]
    del smaller["components"]["schemas"]["Invoice"]["properties"]["credited"]
    del smaller["components"]["schemas"]["KeyFields"]["properties"]["project"]
    kind = next(one for one in of(smaller, INVOICES)["parameters"] if one["name"] == "kind")
    kind["schema"]["items"]["enum"].remove("credit-note")
    assert breaks(smaller, openapi.document()) == []
