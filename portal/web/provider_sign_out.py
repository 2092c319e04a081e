"""After a sign-out here, the way to the identity provider to sign out there: RP-initiated logout of OpenID Connect.

No token of a provider is kept, so the request names us (`client_id`) and nobody: the provider asks the person.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode, urlsplit

import structlog
from allauth.account.authentication import get_authentication_records
from allauth.core.internal import ratelimit
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.core.tenants.models import IdentityProvider
from portal.web.single_sign_on import Providers

log = structlog.get_logger("portal.web")
LONGEST = 2000
"""Characters of a provider's address that we lead to."""


def path_of(request: HttpRequest) -> str:
    """The page that leads on to the provider that this session came by; "" where it came by none, or none that is to
    sign people out. One query."""
    names = [record.get("provider") for record in get_authentication_records(request, request.user)]
    name = next((name for name in reversed(names) if name), None)
    if name is None or not IdentityProvider.objects.filter(name=name, enabled=True, sign_out=True).exists():
        return ""
    return reverse("openid_connect_sign_out", args=[name])


@never_cache
@require_safe
def sign_out(request: HttpRequest, provider_id: str) -> HttpResponse:
    """A page, not a redirect: what a form is answered with may not lead elsewhere (`form-action` of our policy)."""
    if not ratelimit.consume(request, app="allauth.account", action="login", limit_get=True):
        refused: HttpResponse = ratelimit.respond_429(request)
        return refused
    row = IdentityProvider.objects.filter(name=provider_id, enabled=True, sign_out=True).first()
    if row is None:
        raise Http404(provider_id)
    if request.user.is_authenticated:  # an address alone signs nobody out
        return redirect("account_logout")
    url = _address_of(request, row)
    response = render(request, "account/signed_out.html", {"provider": row.title, "url": url})
    if url:
        response["Refresh"] = f"0; url={url}"
    return response


def _address_of(request: HttpRequest, row: IdentityProvider) -> str:
    """Where the provider signs people out and then leads back; "" where it does not say, or does not answer."""
    from requests import RequestException

    try:
        with Providers(request).get_requests_session() as session:
            answer = session.get(f"{row.url.rstrip('/')}/.well-known/openid-configuration")
            answer.raise_for_status()
            config: Any = answer.json()
    except (RequestException, ValueError) as error:
        log.warning("an identity provider cannot be asked to sign out", provider=row.name, error=repr(error))
        return ""
    endpoint = config.get("end_session_endpoint") if isinstance(config, dict) else None
    if not isinstance(endpoint, str) or not _is_safe(endpoint, row):
        return ""
    back = request.build_absolute_uri(reverse("account_login"))
    query = urlencode({"client_id": row.client_id, "post_logout_redirect_uri": back})
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"


def _is_safe(endpoint: str, row: IdentityProvider) -> bool:
    """An address as the issuer's own is: https, or http on this machine; nothing that ends a header or hides a host."""
    if len(endpoint) > LONGEST or not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint:
        return False
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        return False
    schemes = {"https", urlsplit(row.url).scheme}
    return parts.scheme in schemes and bool(parts.hostname) and not parts.username and not parts.fragment
