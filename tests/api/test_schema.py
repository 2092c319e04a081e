"""The schema: valid, complete, and the one that is committed. Cases 14 and 15 of the API."""

from __future__ import annotations

import json
import re

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from portal.api import openapi
from portal.api.routes import routes
from portal.env import ROOT
from tests.api.door import Door

COMMITTED = ROOT / "docs" / "reference" / "openapi.json"


def test_api_014_the_schema_is_valid_openapi_3_1() -> None:
    document = openapi.document()
    assert document["openapi"] == "3.1.0"
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    assert "nullable" not in json.dumps(document)


def test_api_014_the_committed_schema_is_what_the_code_says() -> None:
    """`./run manage openapi > docs/reference/openapi.json` after a change."""
    assert json.loads(COMMITTED.read_text()) == openapi.document()


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
