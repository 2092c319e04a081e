"""What holds once somebody is signed in: for how long, what operators need, and the frame of a person's own account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from portal.core.tenants.models import User
from portal.web.access_decorators import frame_of, to_sign_in
from portal.web.page_frame import SettingsTab
from portal.web.second_factor import has_second_factor, to_second_factor

GetResponse = Callable[[HttpRequest], HttpResponse]
EVERY = 60  # seconds between two notes of when a session was seen
BEGUN, SEEN = "begun_at", "seen_at"  # of a session, in seconds since 1970
OPEN = (
    *("/accounts/", "/static/", "/brand/", "/invitations/"),
    *("/healthz", "/readyz", "/hooks/", "/api/", "/.well-known/"),
)
"""Where nobody is asked for a second factor: to set one up, to sign out, and what has gates of its own."""
ACCOUNT_PAGES = (
    (gettext_lazy("Two-factor authentication"), "mfa_index", ("mfa_",)),
    (
        gettext_lazy("Password"),
        "account_change_password",
        ("account_change_password", "account_set_password"),
    ),
    (gettext_lazy("Sessions"), "usersessions_list", ("usersessions_",)),
    (gettext_lazy("Language"), "account_language", ("account_language",)),
    (gettext_lazy("Your data"), "own_data", ("own_data",)),
)
"""The tabs of a person's own account: label, address, and what the names of its addresses begin with."""
ENTRANCES = frozenset(
    {"mfa_authenticate", "mfa_reauthenticate", "mfa_reauthenticate_webauthn", "mfa_login_webauthn"}
)


class SessionLimits:
    """Ends a session after so many hours, and after so many minutes without a request: people sign in again.

    Stands behind the middleware of messages.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        hours, idle = settings.CLUSTERTAB_SESSION_HOURS, settings.CLUSTERTAB_SESSION_IDLE_MINUTES
        if (hours or idle) and _has_session(request) and isinstance(request.user, User):
            now = int(datetime.now(UTC).timestamp())
            begun, seen = request.session.get(BEGUN, now), request.session.get(SEEN, now)
            if (hours and now - begun >= hours * 3600) or (idle and now - seen >= idle * 60):
                logout(request)
                if not request.path_info.startswith(OPEN):
                    return to_sign_in(request)
            elif now - request.session.get(SEEN, 0) >= EVERY:
                request.session[BEGUN], request.session[SEEN] = begun, now
                rows = UserSession.objects.filter(session_key=request.session.session_key)
                rows.update(last_seen_at=datetime.now(UTC))
        return self.get_response(request)


def _has_session(request: HttpRequest) -> bool:
    return settings.SESSION_COOKIE_NAME in request.COOKIES


class OperatorSecondFactor:
    """Where it is required, an operator without a second factor sees no page but those that set one up."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if (
            settings.CLUSTERTAB_OPERATOR_SECOND_FACTOR
            and not request.path_info.startswith(OPEN)
            and isinstance(request.user, User)
            and request.user.operator_role
            and not has_second_factor(request.user)
        ):
            return to_second_factor(request, _("Operators need a second factor here."))
        return self.get_response(request)


def account_frame(request: HttpRequest) -> dict[str, Any]:
    """What surrounds allauth's pages of a person's own account: the frame of all pages, with tabs. One query there."""
    match = getattr(request, "resolver_match", None)
    name = (match.url_name or "") if match is not None else ""
    user = getattr(request, "user", None)
    prefixes = tuple(prefix for _label, _address, begins in ACCOUNT_PAGES for prefix in begins)
    if name in ENTRANCES or not name.startswith(prefixes) or not isinstance(user, User):
        return {}
    tabs = tuple(
        SettingsTab(label=str(label), url=reverse(address), is_current=name.startswith(begins))
        for label, address, begins in ACCOUNT_PAGES
    )
    return {"frame": replace(frame_of(user, area=""), tabs=tabs)}
