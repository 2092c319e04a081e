"""Names the person behind every change that a request makes, and the page."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from portal.core.audit.actor import acting_as


class Acting:
    """Stands after the one that finds out who is signed in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        def person() -> str:
            user = getattr(request, "user", None)
            return str(user) if user is not None and user.is_authenticated else ""

        with acting_as(person, through=f"page {request.path}"):
            return self.get_response(request)
