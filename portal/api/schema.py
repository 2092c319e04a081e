"""How an endpoint reads in the OpenAPI schema: from what it declares for reading and refusing requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import build_parameter_type

from portal.api import problems
from portal.api.expansion import Expansion
from portal.api.parameters import Parameter

READ_ERRORS = {
    "400": "A parameter or the body is not valid.",
    "401": "No valid key came with the request.",
    "403": "The key lacks the scope.",
    "404": "There is no such object, or it is another tenant's.",
    "429": "Too many requests; Retry-After says when to go on.",
    "500": "A fault of ours.",
    "503": "It took too long, or the database does not answer.",
}
WRITE_ERRORS = {
    "409": "It conflicts with the present state, or is refused.",
    "412": "If-Match names another state of the object.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "The Idempotency-Key was sent with another request.",
}
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Another value for each intent: sent again, the first answer comes back and nothing is done twice.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}

IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of the object as you know it: 412 where it was changed meanwhile.",
    "schema": {"type": "string"},
}
IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "With `*`: 412 where there is such an object already.",
    "schema": {"type": "string", "enum": ["*"]},
}


class EndpointSchema(AutoSchema):
    """Reads what `portal.api.views.Endpoint` declares."""

    view: Any

    def get_operation_id(self) -> str:
        words = [
            word
            for word in re.split(r"[/{}._-]+", self.path.removeprefix("/api/v1"))
            if word and word != "name"
        ]
        verb = {"get": "list" if self.view.lists else "get", "post": "create", "delete": "delete"}.get(
            self.method.lower(), self.method.lower()
        )
        one = ["one"] if self.path.endswith("}") and verb == "get" else []
        return "_".join([verb, *one, *words])

    def is_deprecated(self) -> bool:
        deprecation = self.view.deprecated
        return deprecation is not None and not deprecation.fields

    def get_tags(self) -> list[str]:
        return [self.path.removeprefix("/api/v1/").partition("/")[0]]

    def get_description(self) -> str:  # type: ignore[override]  # the stubs know another base
        scope = self.view.scope if self.method == "GET" else self.view.write_scope or self.view.scope
        sentence = " ".join((self.view.__doc__ or "").split())
        return f"{sentence} Scope: `{scope}`." if scope else sentence

    def get_summary(self) -> str:
        return (self.view.__doc__ or "").strip().partition("\n")[0].rstrip(".")

    def get_auth(self) -> list[dict[str, list[str]]]:
        return [{"key": []}]

    def get_override_parameters(self) -> list[Any]:
        return []

    def _get_parameters(self) -> list[dict[str, Any]]:
        declared_parameters = [
            build_parameter_type(name=name, schema={"type": "string"}, location="path", required=True)
            for name in re.findall(r"{(\w+)}", self.path)
        ]
        declared = self.view.parameters if self.method == "GET" else self.view.write_parameters
        declared_parameters += [_parameter(parameter) for parameter in declared]
        if self.method == "POST":
            declared_parameters.append(IDEMPOTENCY | {"required": self.view.needs_idempotency})
        is_object = hasattr(self.view, "get") and not self.view.lists
        if is_object and self.method in {"PUT", "PATCH", "DELETE"}:
            declared_parameters.append(IF_MATCH)
        if is_object and self.method == "PUT":
            declared_parameters.append(IF_NONE_MATCH)
        return declared_parameters

    def get_request_serializer(self) -> Any:
        return None if self.method in {"GET", "DELETE"} else self.view.request_serializer

    def _get_request_body(self, direction: str = "request") -> dict[str, Any] | None:
        if self.view.binary and self.method == "PUT":
            file = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
            return {"content": file, "required": True}
        body: dict[str, Any] | None = super()._get_request_body(direction)  # type: ignore[no-untyped-call]
        if body is not None and self.view.batch is not None:
            media_type, most = self.view.batch
            items = body["content"][media_type]["schema"]
            body["content"] = {media_type: {"schema": {"type": "array", "items": items, "maxItems": most}}}
        return body

    def get_response_serializers(self) -> Any:
        return self.view.serializer

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        del direction
        statuses = {"POST": self.view.success, "PUT": self.view.put_success, "DELETE": 204}
        status = str(statuses.get(self.method, 200))
        errors = READ_ERRORS if self.method == "GET" else READ_ERRORS | WRITE_ERRORS
        if getattr(self.view, "content_type", ""):
            errors = errors | {"409": "It is not rendered yet; Retry-After says when to ask again."}
        bodies = {status: {"description": "Done."} if self.method == "DELETE" else self._success()}
        for code, description in errors.items():
            bodies[code] = {
                "description": description,
                "content": {problems.CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }
        return bodies

    def _success(self) -> dict[str, Any]:
        content_type = getattr(self.view, "content_type", "application/json")
        if content_type != "application/json":
            kinds = getattr(self.view, "content_types", (content_type,))
            return {"description": "The file.", "content": dict(map(_file, kinds))}
        if self.view.serializer is None:
            return {"description": "Done."}
        serializer = self.view.serializer
        if self.method == "POST":
            serializer = getattr(self.view, "created_serializer", serializer)
        if self.method == "PUT":
            serializer = getattr(self.view, "put_serializer", serializer)
        schema: dict[str, Any] = self.resolve_serializer(serializer, "response").ref
        if self.method == "GET":
            schema = self._with(schema, self.view.expansions)
        if self.view.lists and self.method == "GET":
            schema = {
                "type": "object",
                "required": ["data", "next"],
                "properties": {
                    "data": {"type": "array", "items": schema},
                    "next": {
                        "type": ["string", "null"],
                        "description": "Cursor of the next page; null at the end.",
                    },
                    "count": {
                        "type": ["integer", "string"],
                        "description": 'With `count=true`; "10000+" above that.',
                    },
                },
            }
        return {"description": "What was asked for.", "content": {"application/json": {"schema": schema}}}

    def _with(self, schema: dict[str, Any], expansions: Mapping[str, Expansion]) -> dict[str, Any]:
        """The object, which can hold these besides."""
        if not expansions:
            return schema
        items = {
            name: self._with(self.resolve_serializer(one.serializer, "response").ref, one.inner)
            for name, one in expansions.items()
        }
        properties = {
            name: {"type": "array", "items": item, "description": f"With `expand={name}`."}
            for name, item in items.items()
        }
        return {"allOf": [schema, {"type": "object", "properties": properties}]}


def _file(content_type: str) -> tuple[str, dict[str, Any]]:
    media_type = content_type.partition(";")[0]
    of_text = {} if media_type.startswith("text/") else {"format": "binary"}
    return media_type, {"schema": {"type": "string", "contentMediaType": media_type, **of_text}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = dict(parameter.schema)
    result: dict[str, Any] = {
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "required": parameter.required,
        "schema": {"type": "array", "items": schema} if parameter.many else schema,
    }
    if parameter.example:
        result["example"] = [parameter.example] if parameter.many else parameter.example
    return result
