"""Before money and secrets, whoever signed in some time ago proves again who they are."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlencode, urlsplit

from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.internal.flows.reauthentication import get_reauthentication_flows
from allauth.core.exceptions import ImmediateHttpResponse, ReauthenticationRequired
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from portal.core.tenants.models import User


def require_recent_proof(request: HttpRequest) -> None:
    """What was sent goes on after the proof, which allauth's page asks for.

    Raises ReauthenticationRequired, which allauth's middleware answers, or for a person who has neither password nor
    second factor ImmediateHttpResponse: to their identity provider, and back to the page.
    """
    minutes = settings.CLUSTERTAB_REAUTHENTICATION_MINUTES
    if not minutes or not isinstance(request.user, User):
        return
    latest = max((record["at"] for record in get_authentication_records(request, request.user)), default=0)
    if datetime.now(UTC).timestamp() - latest < minutes * 60:
        return
    if get_reauthentication_flows(request.user):
        raise ReauthenticationRequired
    link = SocialAccount.objects.filter(user=request.user).order_by("-last_login").first()
    if link is not None:
        messages.info(request, _("Sign in once more first. Nothing was changed: then send it again."))
        back = urlencode({"next": _form_path(request)})
        address = reverse("openid_connect_login", args=[link.provider])
        raise ImmediateHttpResponse(redirect(f"{address}?{back}"))


def _form_path(request: HttpRequest) -> str:
    """The path of the page that the form stands on."""
    parts = urlsplit(request.headers.get("Referer", ""))
    return parts.path if parts.path.startswith("/") and not parts.path.startswith("//") else reverse("home")
