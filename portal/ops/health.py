"""What load balancers and containers ask: does the process live, and could it serve a page now?"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from django.core.cache import cache
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

log = structlog.get_logger("portal.health")


@never_cache
@require_safe
def alive(request: HttpRequest) -> JsonResponse:
    """200 while the process answers at all; touches no peer, so that a slow database restarts nothing."""
    del request
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """200 when the database and Redis answer, else 503; says which, and nothing about why."""
    del request
    peers = {"database": _answers(_ask_database), "redis": _answers(_ask_redis)}
    return JsonResponse(peers, status=200 if all(state == "ok" for state in peers.values()) else 503)


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _ask_redis() -> None:
    cache.get("readyz")


def _answers(ask: Callable[[], None]) -> str:
    try:
        ask()
    except Exception:  # whatever it is, the peer is not usable
        log.warning("a peer does not answer", exc_info=True)
        return "down"
    return "ok"
