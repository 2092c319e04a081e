"""How people come in: the operator adds them, and nobody signs up."""

from __future__ import annotations

from typing import NoReturn

from allauth.account import views
from allauth.account.adapter import DefaultAccountAdapter
from django.http import Http404, HttpRequest
from django.urls import path, re_path


class NoSignup(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no type hints
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        del request
        return False


def nowhere(request: HttpRequest) -> NoReturn:
    raise Http404(request.path)


# Named one by one: allauth's own list lets people change their address to one that they have not proved,
# and roles are given to addresses.
urlpatterns = [
    path("login/", views.login, name="account_login"),
    path("logout/", views.logout, name="account_logout"),
    path("inactive/", views.account_inactive, name="account_inactive"),
    path("reauthenticate/", views.reauthenticate, name="account_reauthenticate"),
    path("password/change/", views.password_change, name="account_change_password"),
    path("password/set/", views.password_set, name="account_set_password"),
    path("password/reset/", views.password_reset, name="account_reset_password"),
    path("password/reset/done/", views.password_reset_done, name="account_reset_password_done"),
    path(
        "password/reset/key/done/",
        views.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    re_path(
        r"^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        views.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path(
        "signup/", nowhere, name="account_signup"
    ),  # allauth asks for its address to tell of unknown accounts
]
