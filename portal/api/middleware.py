"""What holds for every answer under `/api/`: problems, not pages; no key in an address; compressed, never cached."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

import structlog
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_cache_control

from portal.api import keys
from portal.api.problems import ProblemError, as_response, bad_request, not_found

PREFIX = "/api/"
LEAST_COMPRESSED = 1024  # bytes

log = structlog.get_logger("portal.api")


class Api:
    """Stands inside of whatever logs requests, and outside of whatever answers with pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.gzip = GZipMiddleware(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(PREFIX):
            return self.get_response(request)
        response = as_response(problem) if (problem := _refused(request)) else self._answer(request)
        patch_cache_control(response, private=True, no_store=True)
        if not response.streaming and len(response.content) >= LEAST_COMPRESSED:
            self.gzip.process_response(request, response)  # in place
        return response

    def _answer(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code < 400 or response.headers.get("Content-Type", "").startswith("application/"):
            return response
        problem = not_found() if response.status_code == 404 else _of_status(response.status_code)
        return as_response(problem)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """A fault of ours: the log has the traceback, whoever asked has the request's id."""
        if not request.path_info.startswith(PREFIX) or isinstance(exception, Http404):
            return None
        log.error("a request to the API failed", path=request.path, exc_info=exception)
        detail = "The fault is ours. Send the same request again, with the same Idempotency-Key; tell us the instance."
        return as_response(ProblemError(500, "internal", "Something went wrong here", detail))


def _refused(request: HttpRequest) -> ProblemError | None:
    if not settings.CLUSTERTAB_API:
        return not_found()
    if keys.IN_TEXT.search(unquote(request.get_full_path())):
        return bad_request(
            "A key belongs into the header Authorization, never into an address, which is logged and shown in many "
            "places: revoke this key, it counts as compromised."
        )
    return None


def _of_status(status: int) -> ProblemError:
    titles = {
        400: "The request is not valid",
        405: "This address does not take that method",
        413: "It is too large",
    }
    return ProblemError(status, f"http-{status}", titles.get(status, "It cannot be answered"))
