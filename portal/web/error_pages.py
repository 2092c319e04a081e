"""Pages in the place of those that could not be made for a reason that their reader can act on."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from clusters.absent_records import RowsInFilesError
from portal import patience
from portal.sentences import sentence

log = structlog.get_logger("portal.web")


class ErrorPages:
    """Rows that are only in files, and a statement that was given up. The API has problems of its own for both."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if request.path_info.startswith("/api/"):
            return None
        if isinstance(exception, RowsInFilesError):
            return render(request, "rows_in_files.html", {"text": sentence(exception)}, status=409)
        if patience.ran_out(exception):
            log.warning("a statement was given up", path=request.path, error=str(exception))
            return render(request, "503.html", status=503)
        return None
