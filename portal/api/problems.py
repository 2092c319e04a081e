"""Errors as RFC 9457 problem details: every answer that is not a success has this one shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from django.core.exceptions import (
    ObjectDoesNotExist,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    ValidationError,
)
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse
from rest_framework import exceptions

from clusters.absent_records import RowsInFilesError
from portal.errors import CodedError
from portal.sentences import sentence

CONTENT_TYPE = "application/problem+json"

log = structlog.get_logger("portal.api")


class ProblemError(Exception):
    """An answer that refuses: `errors` are pairs of a JSON pointer into the body (or a parameter) and a sentence.

    `members` are what the body has beside those of all problems.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str = "",
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        code: str = "",
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail or title)
        self.status, self.kind, self.title, self.detail, self.code = status, kind, title, detail, code
        self.errors, self.headers, self.members = tuple(errors), dict(headers or {}), dict(members or {})


def bad_request(detail: str, *errors: tuple[str, str]) -> ProblemError:
    return ProblemError(400, "invalid-request", "The request is not valid", detail, errors=errors)


def bad_parameter(name: str, sentence: str) -> ProblemError:
    """Of the query string: the pointer is the parameter's name."""
    return bad_request(sentence, (name, sentence))


def not_found() -> ProblemError:
    return ProblemError(404, "not-found", "There is no such object")


def conflict(detail: str) -> ProblemError:
    return ProblemError(409, "conflict", "It conflicts with the present state", detail)


def refused(reason: CodedError | str) -> ProblemError:
    """A use case that says no: `detail` has the reason for people, `code` the one for programs."""
    if isinstance(reason, str):
        return ProblemError(409, "refused", "It is refused", reason)
    return ProblemError(409, "refused", "It is refused", sentence(reason), code=reason.code)


def missing_scope(scope: str) -> ProblemError:
    return ProblemError(403, "missing-scope", "The key may not do this", f"It needs the scope {scope}.")


def as_response(problem: ProblemError) -> HttpResponse:
    """As `application/problem+json`; `instance` is the request's id, which the logs have too."""
    body: dict[str, Any] = {
        "type": f"urn:clustertab:problem:{problem.kind}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail or problem.title,
        "instance": str(structlog.contextvars.get_contextvars().get("request_id", "")),
    }
    body |= problem.members
    if problem.code:
        body["code"] = problem.code
    if problem.errors:
        body["errors"] = [{"pointer": pointer, "detail": detail} for pointer, detail in problem.errors]
    text = json.dumps(body, ensure_ascii=False)
    return HttpResponse(text, status=problem.status, content_type=CONTENT_TYPE, headers=problem.headers)


def of_exception(error: Exception) -> ProblemError | None:
    """What an exception says to whoever asked; None for a fault of ours, which is logged and answered with 500."""
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    if isinstance(error, Http404 | ObjectDoesNotExist | PermissionDenied):
        return not_found()
    if isinstance(error, RequestDataTooBig):
        return ProblemError(413, "too-large", "The body is too large")
    if isinstance(error, SuspiciousOperation):
        return bad_request("The request is not valid: it has too many parameters, or an impossible header.")
    if isinstance(error, ValidationError):
        return bad_request(" ".join(error.messages))
    if isinstance(error, OperationalError | InterfaceError):
        return _database(error)
    if isinstance(error, RowsInFilesError):
        return refused(error)
    return error if isinstance(error, ProblemError) else None


def _of_framework(error: exceptions.APIException) -> ProblemError:
    if isinstance(error, exceptions.ValidationError):
        return bad_request("Some of what was sent is not valid; see errors.", *_flat("", error.detail))
    if isinstance(error, exceptions.UnsupportedMediaType):
        return ProblemError(415, "unsupported-media-type", "Send JSON", "Send the body as application/json.")
    return ProblemError(error.status_code, error.default_code.replace("_", "-"), str(error.detail))


def _database(error: Exception) -> ProblemError:
    state = getattr(error.__cause__, "sqlstate", "") or ""
    if state == "57014":  # canceled by the statement's time limit
        title, detail = "It took too long", "Ask for less at once: a shorter range, or fewer groups."
        return ProblemError(503, "too-slow", title, detail, headers={"Retry-After": "10"})
    if state == "55P03":  # a row is held for longer than a session waits
        detail = "Somebody else is changing the same thing. Nothing was changed for you: send the same request again."
        return ProblemError(503, "busy", "Ask again in a moment", detail, headers={"Retry-After": "5"})
    log.error("database", error=str(error))
    return ProblemError(503, "unavailable", "The database does not answer", headers={"Retry-After": "5"})


def _flat(pointer: str, detail: Any) -> list[tuple[str, str]]:
    """DRF's nested errors as pointers: /lines/0/amount."""
    if isinstance(detail, Mapping):
        pairs = []
        for name, inner in detail.items():
            pairs += _flat(pointer if name == "non_field_errors" else f"{pointer}/{name}", inner)
        return pairs
    if isinstance(detail, list) and any(isinstance(inner, Mapping | list) for inner in detail):
        return [
            pair for place, inner in enumerate(detail) if inner for pair in _flat(f"{pointer}/{place}", inner)
        ]
    if isinstance(detail, list):
        return [(pointer or "/", str(inner)) for inner in detail]
    return [(pointer or "/", str(detail))]
