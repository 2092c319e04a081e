"""The reference of the REST API as people read it in the portal. Cases 14 and 15 of the API."""

from __future__ import annotations

import json
import shlex
from html import unescape

import pytest

from portal.api import openapi
from portal.api.examples import examples
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db


@pytest.fixture
def house() -> House:
    return a_house(close=False)


def areas() -> dict[str, list[tuple[str, str]]]:
    """The endpoints of the schema by area."""
    by_area: dict[str, list[tuple[str, str]]] = {}
    for path, operations in openapi.document()["paths"].items():
        for method, operation in operations.items():
            by_area.setdefault(operation["tags"][0], []).append(
                (method.upper(), path.removeprefix("/api/v1"))
            )
    return by_area


def test_api_014_the_reference_has_every_endpoint_with_scope_errors_and_example(house: House) -> None:
    index = words(page(house.ben, "/reference/api/"))
    for area, endpoints in areas().items():
        html = unescape(page(house.ben, f"/reference/api/{area}/"))
        for method, path in endpoints:
            assert f"{method} {path}" in index
            assert f"<code>{method} {path}</code></h2>" in html
            curl = examples()[method, path].as_curl(base="http://testserver", key="ct_live_…")
            assert f"<code>{curl}</code>" in html
        for operation in openapi.document()["paths"][f"/api/v1{endpoints[0][1]}"].values():
            assert operation["summary"].replace("`", "") in html
            for name in operation.get("parameters", []):
                assert f"<code>{name['name']}</code>" in html
        assert "No valid key came with the request." in html


def test_api_014_fields_are_told_with_their_types(house: House) -> None:
    text = words(page(house.ann, "/reference/api/invoices/"))
    assert "total money yes" in text
    assert "period.timezone string yes IANA zone in which the borders were chosen." in text
    assert "kind one of: invoice, correction, credit-note, may be repeated no Which documents." in text
    assert "Scope: invoices:read" in text
    assert "net money no Before tax; all that is left of it unless said." in text


def test_an_area_that_is_none_is_not_found_and_strangers_sign_in(house: House) -> None:
    assert signed_in(house.ann).get("/reference/api/nothing/").status_code == 404
    assert "API reference" in page(house.ann, "/t/vision-lab/api-keys/")


def test_api_015_the_curl_of_an_example_is_the_request_that_tests_send() -> None:
    for (method, path), example in examples().items():
        line = example.as_curl(base="https://billing.example", key="KEY").replace("\\\n", "")
        program, *arguments = shlex.split(line)
        assert (program, arguments[-1]) == ("curl", f"https://billing.example/api/v1{example.path}"), path
        assert "Authorization: Bearer KEY" in arguments
        assert (arguments[arguments.index("-X") + 1] if "-X" in arguments else "GET") == method
        if example.body is not None:
            body = arguments[arguments.index("--data-binary") + 1]
            assert (body if isinstance(example.body, str) else json.loads(body)) == example.body
