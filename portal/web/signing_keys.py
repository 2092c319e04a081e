"""The operator's public keys, for whoever verifies evidence."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.utils.cache import patch_cache_control
from django.views.decorators.http import require_safe

from billing.models import SigningKey

HOUR = 3600


@require_safe
def signing_keys(request: HttpRequest) -> JsonResponse:
    """All that ever signed, the newest first; to be read by anybody, signed in or not. One query."""
    del request
    rows = SigningKey.objects.order_by("-since", "-pk").values_list("name", "public", "since", "until")
    keys = [
        {"key": name, "algorithm": "Ed25519", "public_key": public, "from": since, "until": until}
        for name, public, since, until in rows
    ]
    response = JsonResponse({"keys": keys}, json_dumps_params={"indent": 1})
    patch_cache_control(response, public=True, max_age=HOUR)
    return response
