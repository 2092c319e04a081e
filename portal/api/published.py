"""The schema as it is published: docs/reference/openapi.json, which a test compares with what the endpoints declare.

A web process that generated it again would hold its generator and all of the document, 20 MiB, for ever.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.generic import View

from portal.api.problems import as_response, not_found
from portal.env import ROOT

FILE = ROOT / "docs" / "reference" / "openapi.json"


def published() -> bytes:
    return FILE.read_bytes()


class Schema(View):
    """This document. It needs no key."""

    def get(self, request: HttpRequest) -> HttpResponse:
        del request
        return HttpResponse(published(), content_type="application/json")

    def http_method_not_allowed(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        del request, args, kwargs
        return as_response(not_found())
