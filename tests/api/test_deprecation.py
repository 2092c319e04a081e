"""What is to go is announced to whoever uses it. Case 13 of the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest

from portal.api import openapi
from portal.api.deprecation import Deprecation
from portal.api.resources.me import Me
from portal.api.routes import routes
from portal.env import ROOT
from tests.api.door import Door

pytestmark = pytest.mark.django_db

SOON = Deprecation(since=date(2026, 1, 1), sunset=date(2027, 3, 1))
METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture
def document() -> Iterator[Any]:
    """The schema as the code says it now."""
    openapi.document.cache_clear()
    yield openapi.document
    openapi.document.cache_clear()


def test_api_013_each_answer_of_what_is_to_go_says_when(
    ann: Door, monkeypatch: pytest.MonkeyPatch, document: Any
) -> None:
    assert {"Deprecation", "Sunset", "Link"}.isdisjoint(ann.get("/me").headers)
    monkeypatch.setattr(Me, "deprecated", SOON)
    for answer, status in ((ann.get("/me"), 200), (ann.get("/me?wrong=1"), 400), (Door("").get("/me"), 401)):
        assert answer.status == status
        assert answer.headers["Deprecation"] == "@1767225600"
        assert answer.headers["Sunset"] == "Mon, 01 Mar 2027 00:00:00 GMT"
        assert answer.headers["Link"] == '</reference/api/>; rel="deprecation"; type="text/html"'
    assert ann.get("/status").headers.get("Deprecation") is None
    assert document()["paths"]["/api/v1/me"]["get"]["deprecated"] is True


def test_api_013_programs_have_a_year_at_least() -> None:
    announced = date(2026, 1, 1)
    with pytest.raises(ValueError, match="at least 365 days"):
        Deprecation(since=announced, sunset=announced + timedelta(days=364))
    assert Deprecation(since=announced, sunset=announced + timedelta(days=365)).headers


def test_api_013_the_reference_says_the_rule_and_whether_anything_is_deprecated(document: Any) -> None:
    """Whoever deprecates something has the reference say so, and the schema."""
    deprecated = {
        f"/api/v1/{route.pattern}"
        for route in routes
        if route.callback.view_class.deprecated is not None  # type: ignore[attr-defined]
    }
    marked = {
        path
        for path, operations in document()["paths"].items()
        if any(operations[method].get("deprecated") for method in METHODS & {*operations})
    }
    reference = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert "announced for at least a year" in reference
    assert ("Nothing is deprecated now." in reference) == (not deprecated)
    assert marked <= deprecated
