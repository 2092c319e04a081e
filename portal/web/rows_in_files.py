"""What a page says that needs rows of sealed months which stand in files alone."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from clusters.absent_records import RowsInFilesError


class RowsInFiles:
    """A sentence in the place of such a page. The API answers with a problem of its own."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, RowsInFilesError):
            return None
        text = _(
            "The rows of {months} are not in the database any more: they stand in the files of sealed months. Whoever "
            "runs the clusters can load them back."
        ).format(months=exception.values["months"])
        return render(request, "rows_in_files.html", {"text": text}, status=409)
