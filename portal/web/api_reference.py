"""The reference of the REST API, from its OpenAPI document: areas with their endpoints, and an example of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import msgspec
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse

from portal.api.examples import Example, examples
from portal.api.published import published
from portal.core.tenants.models import User
from portal.web.access_decorators import answer, frame_of

METHODS = ("get", "post", "put", "patch", "delete")
DEEPEST = 3  # levels of fields within fields
KEY = "ct_live_…"
SCOPE = " Scope: `"  # begins the last sentence of a description
Json = Mapping[str, Any]
Schemas = Mapping[str, Mapping[str, msgspec.Raw]]
"""By kind and name what is referred to."""


class Published(msgspec.Struct):
    """The document, of which only what a page shows is read: all of it would take 6 MiB."""

    paths: dict[str, dict[str, msgspec.Raw]]
    components: dict[str, dict[str, msgspec.Raw]]


class Heading(msgspec.Struct):
    """What the index of all areas shows of an operation."""

    tags: list[str]
    summary: str
    description: str


@dataclass(frozen=True, slots=True)
class Row:
    """A parameter, or a field of a body or an answer: `lines[].amount`."""

    name: str
    type: str  # "string, date-time", "one of: invoice, credit-note"
    required: bool
    about: str


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One method of one address: the index of all areas asks for little of it, the page of its area for the rest."""

    method: str
    path: str  # behind /api/v1
    heading: Heading
    published: msgspec.Raw
    schemas: Schemas
    base: str

    @cached_property
    def operation(self) -> Json:
        return _read(self.published)

    @property
    def anchor(self) -> str:
        return f"{self.method.lower()}{self.path.replace('/', '-').translate({123: None, 125: None})}"

    @property
    def summary(self) -> str:
        return _plain(self.heading.summary)

    @property
    def about(self) -> str:
        return _plain(self.heading.description.partition(SCOPE)[0])

    @property
    def scope(self) -> str:
        return self.heading.description.partition(SCOPE)[2].rstrip("`.")

    @cached_property
    def parameters(self) -> list[Row]:
        return [_parameter(self.schemas, one) for one in self.operation.get("parameters", [])]

    @cached_property
    def body(self) -> list[Row]:
        contents = [*self.operation.get("requestBody", {}).get("content", {}).values()]
        return [row for one in contents[:1] for row in _fields(self.schemas, one.get("schema", {}))]

    @cached_property
    def answer(self) -> list[Row]:
        responses = sorted(self.operation["responses"].items())
        first: Json = next((one for status, one in responses if status.startswith("2")), {})
        content = first.get("content", {}).get("application/json", {})
        return [*_fields(self.schemas, content.get("schema", {}))]

    @property
    def statuses(self) -> list[tuple[str, str]]:
        """Each with what it says."""
        responses = sorted(self.operation["responses"].items())
        return [(status, _plain(one["description"])) for status, one in responses]

    @property
    def curl(self) -> str:
        example = self._example
        return example.as_curl(base=self.base, key=KEY) if example else ""

    @property
    def printed(self) -> str:
        """The answer to it; empty of files."""
        shown = self._example.answer if self._example else None
        return "" if shown is None else json.dumps(shown, indent=2, ensure_ascii=False)

    @property
    def _example(self) -> Example | None:
        return examples().get((self.method, self.path))


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


def _areas(base: str) -> list[Area]:
    """In the order of the alphabet."""
    document = msgspec.json.decode(published(), type=Published)
    by_slug: dict[str, list[Endpoint]] = {}
    for path, operations in document.paths.items():
        for method in METHODS:
            if method in operations:
                heading = msgspec.json.decode(operations[method], type=Heading)
                endpoint = Endpoint(
                    method=method.upper(),
                    path=path.removeprefix("/api/v1"),
                    heading=heading,
                    published=operations[method],
                    schemas=document.components,
                    base=base,
                )
                by_slug.setdefault(heading.tags[0], []).append(endpoint)
    return [Area(slug, by_slug[slug]) for slug in sorted(by_slug)]


def _read(published: msgspec.Raw) -> Json:
    return cast("Json", msgspec.json.decode(published))


def _plain(text: str) -> str:
    """Without the marks of code that the document has."""
    return text.replace("`", "")


def _parameter(schemas: Schemas, parameter: Json) -> Row:
    place = {"path": "in the address", "header": "header"}.get(parameter["in"], "")
    schema = parameter.get("schema", {})
    many = "may be repeated" if schema.get("type") == "array" else ""
    words = [_type(schemas, schema.get("items", schema)), place, many]
    return Row(
        parameter["name"],
        ", ".join(word for word in words if word),
        bool(parameter.get("required")),
        _plain(parameter.get("description", "")),
    )


def _fields(schemas: Schemas, schema: Json, before: str = "", depth: int = 1) -> Iterator[Row]:
    whole = _whole(schemas, schema)
    if whole.get("type") == "array":
        yield from _fields(schemas, whole["items"], f"{before}[]" if before else "", depth)
        return
    for name, field in whole.get("properties", {}).items():
        inner = _whole(schemas, field)
        row = f"{before}.{name}" if before else name
        is_money = {*inner.get("properties", {})} == {"amount", "currency"}
        kind = "money" if is_money else _type(schemas, inner)
        yield Row(row, kind, name in whole.get("required", []), _plain(field.get("description", "")))
        if depth < DEEPEST and not is_money:
            yield from _fields(schemas, field, row, depth + 1)


def _whole(schemas: Schemas, schema: Json) -> Json:
    """The schema with what it refers to."""
    if "$ref" in schema:
        *_, kind, name = schema["$ref"].split("/")
        return _whole(schemas, _read(schemas[kind][name]))
    parts = [_whole(schemas, one) for one in schema.get("allOf", ())] + [
        _whole(schemas, one) for one in schema.get("oneOf", ()) if one != {"type": "null"}
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


def _type(schemas: Schemas, schema: Json) -> str:
    whole = _whole(schemas, schema)
    if whole.get("enum"):
        return "one of: " + ", ".join("null" if value is None else str(value) for value in whole["enum"])
    kinds = whole.get("type", "any")
    names = [kinds] if isinstance(kinds, str) else [*kinds]
    text = " or ".join("list" if name == "array" else name for name in names)
    return f"{text}, {whole['format']}" if "format" in whole else text
