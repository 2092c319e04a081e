"""The schema of the API, OpenAPI 3.1, made from the endpoints: what is declared once is read, refused and documented.

`./run manage openapi` writes it to docs/reference/openapi.json, which `published` serves and a test compares with
what the code says.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.urls import include, path

from portal.api.examples import JSON, Example, examples
from portal.api.routes import routes

TITLE, VERSION = "ClusterTab", "1.0.0"
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string", "description": "What kind of problem: urn:clustertab:problem:…"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "instance": {"type": "string", "description": "The id of the request, which the logs have too."},
        "code": {"type": "string", "description": "Of a refusal: the stable name of its reason."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "JSON pointer into the body, or a parameter.",
                    },
                    "detail": {"type": "string"},
                },
            },
        },
    },
}


@cache
def document() -> dict[str, Any]:
    """The whole schema, with everything in a fixed order."""
    from drf_spectacular.generators import SchemaGenerator

    generator = SchemaGenerator(patterns=[path("api/v1/", include(routes))], api_version="v1")  # type: ignore[no-untyped-call]
    schema: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    schema["openapi"] = "3.1.0"
    schema["info"] = {
        "title": TITLE,
        "version": VERSION,
        "description": "Usage, jobs, invoices and payments of GPU clusters. New fields and new values of enumerations "
        "can come at any time and are no break; everything else would be /api/v2. What is to go answers as before for "
        "at least a year, with the headers Deprecation (since when) and Sunset (from when on it can be gone).",
    }
    components = schema.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = PROBLEM
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "ct_live_…"}}
    schema["security"] = [{"key": []}]
    _mend(schema)
    for (method, address), example in examples().items():
        _illustrate(schema["paths"].get(f"/api/v1{address}", {}).get(method.lower(), {}), example)
    return schema


def _mend(schema: Any) -> None:
    """Of a field that holds anything, null too, the generator says one of both: null would be two of them."""
    if isinstance(schema, dict):
        if schema.get("oneOf") == [{}, {"type": "null"}]:
            del schema["oneOf"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            _mend(inner)


def _illustrate(operation: dict[str, Any], example: Example) -> None:
    """Put the example into the body that the operation takes, and into its answer."""
    bodies = operation.get("requestBody", {}).get("content", {})
    if example.body is not None and example.content_type in bodies:
        bodies[example.content_type]["example"] = example.body
    answers = operation.get("responses", {}).get(str(example.status), {}).get("content", {})
    if example.answer is not None and JSON in answers:
        answers[JSON]["example"] = example.answer
