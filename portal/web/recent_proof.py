"""Before money and secrets, whoever signed in some time ago proves again who they are."""

from __future__ import annotations

from datetime import UTC, datetime

from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.internal.flows.reauthentication import get_reauthentication_flows
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.http import HttpRequest

from portal.core.tenants.models import User


def require_recent_proof(request: HttpRequest) -> None:
    """What was sent goes on after the proof, which allauth's page asks for.

    Raises ReauthenticationRequired, which allauth's middleware answers. Whoever has neither password nor second
    factor signs in elsewhere, and is not asked.
    """
    minutes = settings.CLUSTERTAB_REAUTHENTICATION_MINUTES
    if not minutes or not isinstance(request.user, User):
        return
    latest = max((record["at"] for record in get_authentication_records(request, request.user)), default=0)
    if datetime.now(UTC).timestamp() - latest >= minutes * 60 and get_reauthentication_flows(request.user):
        raise ReauthenticationRequired
