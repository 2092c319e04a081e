"""The leaves of an object by their paths, and sets of fields as `managedFields` writes them."""

from __future__ import annotations

from typing import Any

Fields = frozenset[tuple[str, ...]]


def is_managed(path: tuple[str, ...]) -> bool:
    return path[0] in {"spec", "status"} or path[:2] in {("metadata", "labels"), ("metadata", "annotations")}


def leaves(body: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(body, dict):
        return {path: body}
    return {key: leaf for name, value in body.items() for key, leaf in leaves(value, (*path, name)).items()}


def field_set(paths: Fields) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path in sorted(paths):
        inner = nested
        for name in path:
            inner = inner.setdefault(f"f:{name}", {})
    return nested


def put_leaf(body: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        body = body.setdefault(name, {})
    body[path[-1]] = value


def remove_leaf(body: dict[str, Any], path: tuple[str, ...]) -> None:
    if len(path) > 1 and isinstance(body.get(path[0]), dict):
        remove_leaf(body[path[0]], path[1:])
        if not body[path[0]]:
            del body[path[0]]
    else:
        body.pop(path[0], None)
