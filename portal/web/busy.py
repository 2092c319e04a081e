"""The page of whoever waited too long for the database."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal import patience

log = structlog.get_logger("portal.web")


class Busy:
    """A statement that was given up is said to be that; the transaction is undone by then."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if request.path_info.startswith("/api/") or not patience.ran_out(exception):
            return None
        log.warning("a statement was given up", path=request.path, error=str(exception))
        return render(request, "503.html", status=503)
