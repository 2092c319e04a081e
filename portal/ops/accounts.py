"""How people come in: by invitation, or they sign up where that is open. What a second factor is stored as."""

from __future__ import annotations

from io import BytesIO
from typing import Any, NoReturn

from allauth.account import views
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.forms import SignupForm
from allauth.mfa.adapter import DefaultMFAAdapter
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.utils.translation import gettext_noop

from billing.sign_up import policy
from billing.sign_up.policy import SignUpError
from portal.core.tenants.brand import current_brand, sender
from portal.core.vault.sealing import Sealed, seal
from portal.sentences import sentence
from portal.web import provider_sign_out, single_sign_on

SENTENCES_OF_ALLAUTH = (
    gettext_noop("Be patient, you are sending too many requests."),
    gettext_noop("Please select only one."),
    gettext_noop("Please type your current password."),
    gettext_noop("Too many failed login attempts. Try again later."),
    gettext_noop("You have confirmed %(email)s."),
    gettext_noop("You have signed out."),
    gettext_noop("You must type the same password each time."),
    gettext_noop("Your password has been changed."),
    gettext_noop("Your primary email address must be verified."),
)
"""What people can read of it that no template of ours says: its own German says *du*."""


class Accounts(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no type hints
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        del request
        return policy.is_open()

    def get_from_email(self) -> str:
        return sender()

    def format_email_subject(self, subject: str) -> str:
        return f"{current_brand().name}: {subject}"

    def get_logout_redirect_url(self, request: HttpRequest) -> str:
        """On to the provider that the person came by, where it is to sign them out, too."""
        return provider_sign_out.path_of(request) or str(super().get_logout_redirect_url(request))


class SignUpForm(SignupForm):  # type: ignore[misc]  # allauth has no type hints
    def clean_email(self) -> str:
        """An address of a domain that cannot sign up gets no account either."""
        address = str(super().clean_email())
        try:
            policy.refuse_domain(address, policy.get_policy())
        except SignUpError as refusal:
            raise ValidationError(sentence(refusal)) from refusal
        return address


class SecondFactor(DefaultMFAAdapter):  # type: ignore[misc]  # allauth has no type hints
    """Secrets of apps and recovery codes rest encrypted; an authenticator app shows the portal's name."""

    def encrypt(self, text: str) -> str:
        return seal(text).token

    def decrypt(self, encrypted_text: str) -> str:
        """Raises VaultError where the instance's keys were replaced."""
        return Sealed(encrypted_text).reveal()

    def get_totp_issuer(self) -> str:
        return current_brand().name.replace(":", " ")  # which stands behind it in the address of an app

    def build_totp_svg(self, url: str) -> str:
        import segno

        drawing = BytesIO()
        segno.make(url, error="m", micro=False).save(
            drawing, kind="svg", xmldecl=False, scale=5, light="#fff"
        )
        return drawing.getvalue().decode()

    def get_public_key_credential_rp_entity(self) -> dict[str, Any]:
        return {**super().get_public_key_credential_rp_entity(), "name": current_brand().name}


def sign_up(request: HttpRequest) -> HttpResponseBase:
    """allauth's page, which proves the address by e-mail; as if it were not there while sign-up is closed."""
    if not policy.is_open():
        nowhere(request)
    response: HttpResponseBase = views.signup(request)
    return response


def nowhere(request: HttpRequest) -> NoReturn:
    raise Http404(request.path)


# Named one by one: allauth's own list lets people change their address to one that they have not proved,
# and roles are given to addresses.
urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", views.login, name="account_login"),
    path("logout/", views.logout, name="account_logout"),
    path("inactive/", views.account_inactive, name="account_inactive"),
    path("reauthenticate/", views.reauthenticate, name="account_reauthenticate"),
    path("confirm-email/", views.email_verification_sent, name="account_email_verification_sent"),
    re_path(r"^confirm-email/(?P<key>[-:\w]+)/$", views.confirm_email, name="account_confirm_email"),
    path("oidc/<slug:provider_id>/login/", single_sign_on.begin, name="openid_connect_login"),
    path("oidc/<slug:provider_id>/login/callback/", single_sign_on.callback, name="openid_connect_callback"),
    path(
        "oidc/<slug:provider_id>/sign-out/",
        provider_sign_out.sign_out,
        name="openid_connect_sign_out",
    ),
    path("2fa/", include("allauth.mfa.urls")),
    path("sessions/", include("allauth.usersessions.urls")),
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
    path("signup/", sign_up, name="account_signup"),
]
