"""The way to an identity provider and back. Who that is here, and what they may, `single_sign_on.admit` says alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import structlog
from allauth.account.adapter import get_adapter as get_account_adapter
from allauth.account.internal.flows.login import record_authentication
from allauth.account.utils import get_next_redirect_url, perform_login
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.core.internal import ratelimit
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp, SocialLogin
from allauth.socialaccount.providers import registry
from allauth.socialaccount.providers.base.constants import AuthError, AuthProcess
from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import validate_email
from django.db import DataError, IntegrityError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.core.audit import acting_as
from portal.core.tenants import single_sign_on
from portal.core.tenants.models import IdentityProvider
from portal.core.tenants.models.sign_on import LONGEST_CLAIM
from portal.core.tenants.single_sign_on import Claims, SignOnError
from portal.core.vault import VaultError
from portal.sentences import sentence

log = structlog.get_logger("portal.web")
MOST = 1000  # values of a claim that are read
JUST_NOW = timedelta(minutes=5)
"""So long ago a provider may have asked who somebody is, who proves it again."""
UNREADABLE = (
    *(VaultError, ValueError, KeyError, TypeError, AttributeError, OverflowError),
    *(ImproperlyConfigured, DataError),
)
"""What allauth lets through of answers that no provider gives: an id of 5,000 letters, or one with NUL."""


class Providers(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no type hints
    """Providers are our rows; nobody signs up, and no account is found by anything but our use case."""

    def list_apps(
        self, request: HttpRequest, provider: str | None = None, client_id: str | None = None
    ) -> list[SocialApp]:
        """As allauth knows them, without a row of its own: all, without their secrets, or the named one. One query."""
        del request, client_id
        rows = IdentityProvider.objects.filter(enabled=True).order_by("title", "pk")
        if provider is not None:
            rows = rows.filter(name=provider)
        if rows:
            _provider_class()
        return [_app(row, with_secret=provider is not None) for row in rows]

    def list_providers(self, request: HttpRequest) -> list[Any]:
        """Those that the sign-in page offers. One query."""
        return [_provider_class()(request=request, app=app) for app in self.list_apps(request)]

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Sign in the account that the person has here; a refusal leads to the sign-in page.

        It always answers, so that nothing of what the provider said goes on into the session.
        """
        row = IdentityProvider.objects.get(name=sociallogin.account.provider)
        data, account = sociallogin.account.extra_data, sociallogin.account
        sociallogin.account.extra_data = {}  # what a provider says is read, not kept
        if sociallogin.is_existing:
            account.save(update_fields=["extra_data"])
        if sociallogin.state.get("process") != AuthProcess.LOGIN:
            _refuse(request, SignOnError("went-wrong", provider=row.title))
        try:
            _refuse_other_issuer(row, data)
            if request.user.is_authenticated:
                _refuse_earlier_sign_in(row, data, datetime.now(UTC))
            claims = claims_of(row, data)
            who = (
                account.user.email if sociallogin.is_existing else claims.email if claims.is_verified else ""
            )
            with acting_as(who or claims.subject, why=f"signed in by {row.title}"):
                person = single_sign_on.admit(provider=row, claims=claims, moment=datetime.now(UTC))
        except SignOnError as refusal:
            _refuse(request, refusal)
        except IntegrityError:  # of two first sign-ins at once, one wins
            _refuse(request, SignOnError("went-wrong", provider=row.title))
        if request.user.is_authenticated:
            get_account_adapter(request).logout(request)
        record_authentication(request, person, "socialaccount", provider=row.name, uid=claims.subject)
        following = sociallogin.get_redirect_url(request)
        raise ImmediateHttpResponse(
            perform_login(request, person, email_verification="none", redirect_url=following)
        )

    def authenticate_by_email(self, sociallogin: SocialLogin) -> None:
        del sociallogin  # by `admit`, or not at all

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        del request, sociallogin
        return False

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: object = None,
        exception: Exception | None = None,
        extra_context: Mapping[str, Any] | None = None,
    ) -> None:
        del extra_context
        from requests import RequestException

        if error == AuthError.CANCELLED:
            code = "was-cancelled"
        else:
            code = "unreachable" if isinstance(exception, RequestException) else "went-wrong"
        _refuse(request, SignOnError(code, provider=provider.app.name))


def _provider_class() -> Any:
    """Loaded where there is a provider to ask, which no worker does: its client takes 6 MB."""
    from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider

    if registry.get_class(OpenIDConnectProvider.id) is None:
        registry.register(OpenIDConnectProvider)
    return OpenIDConnectProvider


def _app(row: IdentityProvider, *, with_secret: bool) -> SocialApp:
    """Raises VaultError where the instance's keys were replaced, and the secret is asked for."""
    return SocialApp(
        provider="openid_connect",
        provider_id=row.name,
        name=row.title,
        client_id=row.client_id,
        secret=row.client_secret.reveal() if with_secret else "",
        settings={
            "server_url": f"{row.url.rstrip('/')}/.well-known/openid-configuration",
            "scope": ["openid", "profile", "email", *row.scopes],
            "oauth_pkce_enabled": True,
        },
    )


def _refuse(request: HttpRequest, refusal: SignOnError) -> NoReturn:
    messages.error(request, sentence(refusal))
    raise ImmediateHttpResponse(redirect("account_login"))


def _refuse_other_issuer(row: IdentityProvider, data: Mapping[str, Any]) -> None:
    """Raises SignOnError unless the configured issuer says who it is: allauth compares with what it finds there.

    That the token is for us, and has not expired, allauth has seen to.
    """
    token = data.get("id_token")
    issuer = token.get("iss") if isinstance(token, Mapping) else None
    if not isinstance(issuer, str) or issuer.rstrip("/") != row.url.rstrip("/"):
        log.warning(
            "an identity provider is another one than configured", provider=row.name, issuer=str(issuer)[:200]
        )
        raise SignOnError("went-wrong", provider=row.title)


def _refuse_earlier_sign_in(row: IdentityProvider, data: Mapping[str, Any], moment: datetime) -> None:
    """Raises SignOnError where the provider says that it asked the person longer ago: that proves nothing now.

    Some providers say nothing of it, and are taken at the word that they were given, `prompt`.
    """
    token = data.get("id_token")
    asked_at = token.get("auth_time") if isinstance(token, Mapping) else None
    if isinstance(asked_at, int) and moment.timestamp() - asked_at > JUST_NOW.total_seconds():
        raise SignOnError("not-asked-again", provider=row.title)


def claims_of(row: IdentityProvider, data: Mapping[str, Any]) -> Claims:
    """Of the id token and the user info together, which have to be of one subject. Raises SignOnError."""
    token, info = data.get("id_token") or {}, data.get("userinfo") or {}
    subjects = {part.get("sub") for part in (token, info) if part}
    subject = next(iter(subjects), None)
    if len(subjects) != 1 or not isinstance(subject, str) or not 0 < len(subject) <= 191:
        raise SignOnError("went-wrong", provider=row.title)
    merged = {**token, **info}
    email = merged.get("email")
    return Claims(
        subject=subject,
        email=_address(email),
        # By the part that has this address: that another one of the person is verified says nothing of it.
        is_verified=any(
            part.get("email") == email and part.get("email_verified") in (True, "true")
            for part in (token, info)
        ),
        groups=frozenset(_values(merged, row.groups_claim)),
        organizations=frozenset(_values(merged, row.tenant_claim)),
    )


def _address(value: object) -> str:
    """In lower case; "" for what is none."""
    if not isinstance(value, str) or len(value) > 254:
        return ""
    try:
        validate_email(value)
    except ValidationError:
        return ""
    return value.lower()


def _values(claims: Mapping[str, Any], name: str) -> Iterator[str]:
    """Of a claim by its name, or by a path with dots such as `realm_access.roles`: a text, or a list of texts."""
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    for text in (value if isinstance(value, list) else [value])[:MOST]:
        if isinstance(text, str) and 0 < len(text) <= LONGEST_CLAIM:
            yield text


@never_cache
@require_safe
def begin(request: HttpRequest, provider_id: str) -> HttpResponse:
    """To the provider. What an address asks for beside the page to go on to is not passed on.

    Who is signed in already proves again who they are, so the provider has to ask them.
    """
    if not ratelimit.consume(request, app="allauth.account", action="login", limit_get=True):
        refused: HttpResponse = ratelimit.respond_429(request)
        return refused
    row = IdentityProvider.objects.filter(name=provider_id, enabled=True).first()
    if row is None:
        raise Http404(provider_id)
    from allauth.socialaccount.providers.oauth2.client import OAuth2Error
    from requests import RequestException

    try:
        provider = Providers(request).get_provider(request, provider_id)
        following = get_next_redirect_url(request)
        params = provider.get_auth_params() | (
            {"prompt": "login", "max_age": "0"} if request.user.is_authenticated else {}
        )
        answer: HttpResponse = provider.redirect(
            request, process=AuthProcess.LOGIN, next_url=following, auth_params=params
        )
        return answer
    except VaultError:
        refusal = SignOnError("went-wrong", provider=row.title)
    except (RequestException, OAuth2Error, ValueError, KeyError):
        refusal = SignOnError("unreachable", provider=row.title)
    messages.error(request, sentence(refusal))
    return redirect("account_login")


@never_cache
@require_safe
def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Back from the provider, whose answers may be anything."""
    row = IdentityProvider.objects.filter(name=provider_id, enabled=True).first()
    if row is None:
        raise Http404(provider_id)
    from allauth.socialaccount.providers.openid_connect import views

    try:
        answer: HttpResponse = views.callback(request, provider_id)
        return answer
    except UNREADABLE as error:
        log.warning("the answer of an identity provider cannot be read", provider=row.name, error=repr(error))
        messages.error(request, sentence(SignOnError("went-wrong", provider=row.title)))
        return redirect("account_login")
