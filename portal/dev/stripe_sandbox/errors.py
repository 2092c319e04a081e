"""What the sandbox refuses, in the shape that Stripe's errors have."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]  # an object of the API, as it is written to JSON


class ApiError(Exception):
    """An answer that is no object: its status and what stands below `error`."""

    def __init__(self, status: int, error: Json) -> None:
        super().__init__(error.get("message"))
        self.status = status
        self.error = {name: value for name, value in error.items() if value is not None}

    @property
    def message(self) -> str:
        return str(self.error.get("message", ""))


def invalid(
    message: str, *, param: str | None = None, code: str | None = None, status: int = 400
) -> ApiError:
    error = {"type": "invalid_request_error", "code": code, "message": message, "param": param}
    if code:
        error["doc_url"] = f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}"
    return ApiError(status, error)


def missing(kind: str, identifier: str, *, param: str, status: int = 400) -> ApiError:
    """No such object. In a path it is a 404, as a parameter a 400."""
    return invalid(f"No such {kind}: '{identifier}'", param=param, code="resource_missing", status=status)


def not_modelled(what: str, *, param: str | None = None) -> ApiError:
    """Stripe would do it and the sandbox does not: said, never skipped in silence."""
    return invalid(f"The sandbox does not model {what}.", param=param, code="sandbox_not_modelled")
