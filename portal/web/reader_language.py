"""In which language a request is answered: the person's own, else the browser's; operators' pages are in English."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.translation import get_language_from_request

from portal.languages import in_language
from portal.locales import ENGLISH

OPERATORS = ("operator", "admin", "reference")  # first in the addresses of pages in English
PROGRAMS = {"csv", "xml", "evidence", "focus", "documents"}  # last in those of what programs read


class ReaderLanguage:
    """Middleware, behind the one that knows who is signed in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        language = language_of(request)
        request.LANGUAGE_CODE = language
        with in_language(language):
            response = self.get_response(request)
        response.headers.setdefault("Content-Language", language)
        patch_vary_headers(response, ["Accept-Language"])
        return response


def language_of(request: HttpRequest) -> str:
    """`en` or `de`. No query where the address decides."""
    parts = request.path_info.strip("/").split("/")
    if parts[0] in OPERATORS or parts[-1] in PROGRAMS:
        return ENGLISH
    own = getattr(request.user, "language", "")
    return own or get_language_from_request(request)
