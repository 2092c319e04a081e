"""What of an OpenAPI document breaks programs that were written against an earlier one.

New addresses, parameters, fields and values of enumerations are none. Whatever a program sends has to be taken as
before, and whatever it reads has to be there as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")
Json = Mapping[str, Any]


def breaks(old: Json, new: Json) -> list[str]:
    """In words, each with its place."""
    return sorted({*_breaks(old, new)})


def _breaks(old: Json, new: Json) -> Iterator[str]:
    for path, operations in old["paths"].items():
        for method in METHODS:
            if method not in operations:
                continue
            place = f"{method.upper()} {path}"
            after = new["paths"].get(path, {}).get(method)
            if after is None:
                yield f"{place}: it is gone"
                continue
            yield from _of_parameters(place, operations[method], after)
            yield from _of_bodies(place, old, new, operations[method], after)
            yield from _of_answers(place, old, new, operations[method], after)


def _of_parameters(place: str, before: Json, after: Json) -> Iterator[str]:
    earlier, later = (
        {(one["in"], one["name"]): one for one in operation.get("parameters", [])}
        for operation in (before, after)
    )
    for key, parameter in earlier.items():
        if key not in later:
            yield f"{place}: parameter {key[1]} is gone"
            continue
        schemas = (parameter.get("schema", {}), later[key].get("schema", {}))
        if schemas[0].get("type") != schemas[1].get("type"):
            yield f"{place}: parameter {key[1]} has another type"
        yield from _fewer_values(f"{place}: parameter {key[1]}", *map(_items, schemas))
    for key, parameter in later.items():
        if parameter.get("required") and not earlier.get(key, {}).get("required"):
            yield f"{place}: parameter {key[1]} is required"


def _items(schema: Json) -> Json:
    return schema.get("items", schema)  # type: ignore[no-any-return]


def _fewer_values(place: str, before: Json, after: Json) -> Iterator[str]:
    if "enum" in after:
        for value in before.get("enum", ["any value"]):
            if value not in after["enum"]:
                yield f"{place}: {value} is not taken any more"


def _of_bodies(place: str, old: Json, new: Json, before: Json, after: Json) -> Iterator[str]:
    earlier, later = (one.get("requestBody", {}).get("content", {}) for one in (before, after))
    for kind, content in earlier.items():
        if kind not in later:
            yield f"{place}: a body of {kind} is not taken any more"
            continue
        schemas = (content.get("schema", {}), later[kind].get("schema", {}))
        yield from _compared(f"{place}: body", old, new, *schemas, sent=True)
    if after.get("requestBody", {}).get("required") and not before.get("requestBody"):
        yield f"{place}: a body is required"


def _of_answers(place: str, old: Json, new: Json, before: Json, after: Json) -> Iterator[str]:
    for status, response in before["responses"].items():
        if not status.startswith("2"):
            continue
        if status not in after["responses"]:
            yield f"{place}: it is not answered with {status} any more"
            continue
        for kind, content in response.get("content", {}).items():
            later = after["responses"][status].get("content", {}).get(kind)
            if later is None:
                yield f"{place}: the answer is no {kind} any more"
                continue
            schemas = (content.get("schema", {}), later.get("schema", {}))
            yield from _compared(f"{place}: answer", old, new, *schemas, sent=False)


def _compared(
    place: str,
    old: Json,
    new: Json,
    before: Json,
    after: Json,
    *,
    sent: bool,
    seen: frozenset[str] = frozenset(),
) -> Iterator[str]:
    reference = str(before.get("$ref", ""))
    if reference and reference in seen:
        return
    seen = seen | {reference}
    before, after = _whole(old, before), _whole(new, after)
    types, later_types = _types(before), _types(after)
    lost, gained = types - later_types, later_types - types
    if types and later_types and (lost if sent else gained):
        yield f"{place}: its type is {' or '.join(sorted(later_types))}, and was {' or '.join(sorted(types))}"
    if sent:
        yield from _fewer_values(place, before, after) if "enum" in before or "enum" in after else ()
        for name in {*after.get("required", [])} - {*before.get("required", [])}:
            yield f"{place}/{name}: it is required"
    fields, later_fields = before.get("properties", {}), after.get("properties", {})
    for name, field in fields.items():
        if name not in later_fields:
            yield f"{place}/{name}: it is gone"
        else:
            yield from _compared(f"{place}/{name}", old, new, field, later_fields[name], sent=sent, seen=seen)
    if "items" in before and "items" in after:
        yield from _compared(f"{place}/-", old, new, before["items"], after["items"], sent=sent, seen=seen)


def _whole(document: Json, schema: Json) -> Json:
    """The schema with what it refers to, and with the parts that it is put together of."""
    if "$ref" in schema:
        *_, kind, name = schema["$ref"].split("/")
        return _whole(document, document["components"][kind][name])
    if "allOf" not in schema:
        return schema
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in (_whole(document, one) for one in schema["allOf"]):
        merged["properties"] = {**merged.get("properties", {}), **part.get("properties", {})}
        merged["required"] = [*merged.get("required", []), *part.get("required", [])]
        merged = {**part, **merged}
    return merged


def _types(schema: Json) -> set[str]:
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return {one for part in schema[choice] for one in _types(part)} or set()
    kind = schema.get("type", [])
    return {kind} if isinstance(kind, str) else {*kind}
