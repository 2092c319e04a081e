"""The reference of the REST API, from its OpenAPI document: areas with their endpoints, and an example of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse

from portal.api.examples import examples
from portal.api.openapi import document
from portal.core.tenants.models import User
from portal.web.access_decorators import answer, frame_of

METHODS = ("get", "post", "put", "patch", "delete")
DEEPEST = 3  # levels of fields within fields
KEY = "ct_live_…"
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A parameter, or a field of a body or an answer: `lines[].amount`."""

    name: str
    type: str  # "string, date-time", "one of: invoice, credit-note"
    required: bool
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one address."""

    anchor: str
    method: str
    path: str  # behind /api/v1
    summary: str
    about: str
    scope: str
    parameters: list[Row]
    body: list[Row]
    answer: list[Row]
    statuses: list[tuple[str, str]]  # with what each says
    curl: str
    printed: str  # the answer to it; empty of files


@dataclass(frozen=True, slots=True)
class Area:
    """Endpoints whose addresses begin alike."""

    slug: str  # "usage-events"
    endpoints: list[Endpoint]

    @property
    def title(self) -> str:
        return self.slug.replace("-", " ").capitalize()


@login_required
def api_reference(request: HttpRequest) -> HttpResponse:
    page = {"areas": _areas(_base(request)), "base": _base(request), "key": KEY}
    return answer(request, frame_of(_user(request), area=""), page, whole="api_reference.html")


@login_required
def api_area(request: HttpRequest, area: str) -> HttpResponse:
    found = next((one for one in _areas(_base(request)) if one.slug == area), None)
    if found is None:
        raise Http404("no such area")
    page = {"area": found}
    return answer(request, frame_of(_user(request), area=""), page, whole="api_area.html")


def _user(request: HttpRequest) -> User:
    return cast("User", request.user)


def _base(request: HttpRequest) -> str:
    """Where the portal is reached."""
    return str(settings.PORTAL_URL).rstrip("/") or f"{request.scheme}://{request.get_host()}"


@lru_cache(maxsize=2)  # of the portal's own address; a host that somebody invents does not fill the memory
def _areas(base: str) -> list[Area]:
    """In the order of the alphabet."""
    by_slug: dict[str, list[Endpoint]] = {}
    for path, operations in document()["paths"].items():
        for method in METHODS:
            if method in operations:
                endpoint = _endpoint(method.upper(), path.removeprefix("/api/v1"), operations[method], base)
                by_slug.setdefault(operations[method]["tags"][0], []).append(endpoint)
    return [Area(slug, by_slug[slug]) for slug in sorted(by_slug)]


def _endpoint(method: str, path: str, operation: Json, base: str) -> Endpoint:
    example = examples().get((method, path))
    about, _, scope = str(operation["description"]).partition(" Scope: `")
    bodies = operation.get("requestBody", {}).get("content", {})
    successes = [one for status, one in sorted(operation["responses"].items()) if status.startswith("2")]
    answers = successes[0].get("content", {}) if successes else {}
    shown = example.answer if example else None
    return Endpoint(
        anchor=f"{method.lower()}{path.replace('/', '-').translate({123: None, 125: None})}",
        method=method,
        path=path,
        summary=_plain(operation["summary"]),
        about=_plain(about),
        scope=scope.rstrip("`."),
        parameters=[_parameter(one) for one in operation.get("parameters", [])],
        body=[row for content in [*bodies.values()][:1] for row in _fields(content.get("schema", {}))],
        answer=[*_fields(answers.get("application/json", {}).get("schema", {}))],
        statuses=[
            (status, _plain(one["description"])) for status, one in sorted(operation["responses"].items())
        ],
        curl=example.as_curl(base=base, key=KEY) if example else "",
        printed="" if shown is None else json.dumps(shown, indent=2, ensure_ascii=False),
    )


def _plain(text: str) -> str:
    """Without the marks of code that the document has."""
    return text.replace("`", "")


def _parameter(parameter: Json) -> Row:
    place = {"path": "in the address", "header": "header"}.get(parameter["in"], "")
    schema = parameter.get("schema", {})
    many = "may be repeated" if schema.get("type") == "array" else ""
    words = [_type(schema.get("items", schema)), place, many]
    return Row(
        parameter["name"],
        ", ".join(word for word in words if word),
        bool(parameter.get("required")),
        _plain(parameter.get("description", "")),
    )


def _fields(schema: Json, before: str = "", depth: int = 1) -> Iterator[Row]:
    whole = _whole(schema)
    if whole.get("type") == "array":
        yield from _fields(whole["items"], f"{before}[]" if before else "", depth)
        return
    for name, field in whole.get("properties", {}).items():
        inner = _whole(field)
        row = f"{before}.{name}" if before else name
        is_money = {*inner.get("properties", {})} == {"amount", "currency"}
        kind = "money" if is_money else _type(inner)
        yield Row(row, kind, name in whole.get("required", []), _plain(field.get("description", "")))
        if depth < DEEPEST and not is_money:
            yield from _fields(field, row, depth + 1)


def _whole(schema: Json) -> Json:
    """The schema with what it refers to."""
    if "$ref" in schema:
        *_, kind, name = schema["$ref"].split("/")
        return _whole(document()["components"][kind][name])
    parts = [_whole(one) for one in schema.get("allOf", ())] + [
        _whole(one) for one in schema.get("oneOf", ()) if one != {"type": "null"}
    ]
    if not parts:
        return schema
    merged: dict[str, Any] = {}
    for part in parts:
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", []), *part.get("required", [])]
        merged |= part
        merged |= {"properties": properties, "required": required} if properties else {}
    return {**merged, **{name: schema[name] for name in ("properties", "description") if name in schema}}


def _type(schema: Json) -> str:
    whole = _whole(schema)
    if whole.get("enum"):
        return "one of: " + ", ".join("null" if value is None else str(value) for value in whole["enum"])
    kinds = whole.get("type", "any")
    names = [kinds] if isinstance(kinds, str) else [*kinds]
    text = " or ".join("list" if name == "array" else name for name in names)
    return f"{text}, {whole['format']}" if "format" in whole else text
