"""The page that Prometheus asks. It shows all tenants' spending, so a token or an operator's session opens it."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.core.tenants.access import DeniedError, Right, rights_of

log = structlog.get_logger("portal.metrics")


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics; 503 where the database does not answer.

    Raises DeniedError for anybody but an operator and whoever shows the token.
    """
    if not (_shows_token(request) or Right.READ in rights_of(request.user)):
        raise DeniedError("neither the token nor an operator")
    from portal.ops.metrics.collector import exposed  # not before it is asked for: the pages do without

    try:
        body, content_type = exposed(accept=request.headers.get("Accept", ""), moment=datetime.now(UTC))
    except DatabaseError:
        log.exception("the database could not be asked for the metrics")
        return HttpResponse(
            "The database did not answer; the log says why.\n", status=503, content_type="text/plain"
        )
    return HttpResponse(body, content_type=content_type)


def _shows_token(request: HttpRequest) -> bool:
    """Compared in constant time, so that nobody finds it out notice by notice."""
    expected = settings.CLUSTERTAB_METRICS_TOKEN
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if not expected or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(shown.strip().encode(), expected.encode())
