"""What holds for every request and every answer, whichever page it is."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_cache_control


class ContentSecurityPolicy:
    """No inline code, no foreign origin: injected markup has nothing to run and nowhere to send."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", settings.CONTENT_SECURITY_POLICY)
        return response


class Compression(GZipMiddleware):
    """Pages are compressed, without helping whoever learns secrets from the length of what is compressed (BREACH).

    Such a guess needs a secret that stays, beside text of the guesser's choice, in many answers. The token of forms is
    masked anew in each answer, a new key is shown once, each answer's length varies by up to a hundred bytes at random,
    and what lies below /accounts/ (codes for recovery, an app's secret) is not compressed at all. Nor are exports, PDFs
    and the REST API's answers, whose ETag is what a client compares.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_page = response.headers.get("Content-Type", "").startswith("text/html") and not response.streaming
        if not is_page or request.path_info.startswith("/accounts/"):
            return response
        return super().process_response(request, response)


class Private:
    """What a signed-in person saw is in no cache, their own browser's included, once they have signed out."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if settings.SESSION_COOKIE_NAME in request.COOKIES and "Cache-Control" not in response.headers:
            patch_cache_control(response, private=True, no_store=True)
        return response


class NoNul:
    """PostgreSQL has no text with NUL in it: nothing has such an address, and nobody is asked for it.

    Of what a page is asked NUL is left out; the administration, whose filters are many, refuses the question.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "\0" in request.path_info:
            raise Http404("NUL in an address")
        if not request.path_info.startswith("/admin/"):
            query = request.META.get("QUERY_STRING", "")
            while "%00" in query:  # what is left of %%0000 is one again
                query = query.replace("%00", "")
            request.META["QUERY_STRING"] = query
        elif any("\0" in text for text in _texts(request)):
            raise BadRequest("NUL in a query")
        return self.get_response(request)


def _texts(request: HttpRequest) -> list[str]:
    return [text for name, values in request.GET.lists() for text in (name, *values)]
