"""Bodies to and from a Kubernetes API, checked with Kubernetes' own schemas and with those of Kueue."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

CRDS = Path(__file__).parents[2].parent / "shared/fixtures/kueue"
RELEASE = "1.31.0"  # of Kubernetes


class SchemaError(ValueError):
    """The body is not what Kubernetes takes; the message says where."""


def check_object(body: dict[str, Any]) -> None:
    """Raises SchemaError."""
    if body["apiVersion"].startswith("kueue."):
        _check(_crd(body["kind"], body["apiVersion"].partition("/")[2]), _without_metadata(body))
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": body["metadata"]}
    _check(_built_in(body["kind"], body["apiVersion"]), body)


@cache
def _built_in(kind: str, version: str) -> Draft202012Validator:
    """The strict schema of the package, which would read its 3 MB anew for each body."""
    group, _, name = version.rpartition("/")
    group = "meta" if kind == "DeleteOptions" else group.partition(".")[0]  # it has the group of its object
    file = "-".join(filter(None, (kind.lower(), group, name))) + ".json"
    schema, definitions = (
        schema_contents(f"kubernetes-json-schema/v{RELEASE}-local-strict/{one}", RELEASE)
        for one in (file, "_definitions.json")
    )
    registry: Registry[Any] = Resource.from_contents(definitions) @ (
        Resource.from_contents(schema) @ Registry()
    )
    return Draft202012Validator(schema, registry=registry)


@cache
def _crd(kind: str, version: str) -> Draft202012Validator:
    path = CRDS / f"kueue.x-k8s.io_{kind.lower()}s.yaml"
    crd = yaml.safe_load(path.read_text(encoding="utf-8"))
    versions = {one["name"]: one["schema"]["openAPIV3Schema"] for one in crd["spec"]["versions"]}
    return Draft202012Validator(_closed(versions[version]))


def _closed(schema: Any) -> Any:
    """As an API server that prunes and validates strictly: a field that is not declared is refused."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _check(validator: Draft202012Validator, body: dict[str, Any]) -> None:
    for error in validator.iter_errors(body):
        raise SchemaError(f"{error.json_path}: {error.message}")


def _without_metadata(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {}}
