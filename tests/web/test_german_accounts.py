"""The pages, refusals and e-mails of signing in say *Sie* to whoever reads German, as all others do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from allauth.mfa.adapter import DefaultMFAAdapter
from django.core import mail
from django.test import Client
from django.urls import URLPattern
from django.utils.translation import override

from portal.core.tenants.models import User
from portal.ops import accounts
from tests import builders
from tests.web import test_second_factor as factors
from tests.web.house import signed_in
from tests.web.pseudo import texts_of
from tests.web.sign_up_stories import decides, mail_reaches_people, op_offers_plans

pytestmark = pytest.mark.django_db

ANN = "ann@vision.example"
NEW = "a much longer secret"
FAMILIAR = re.compile(
    r"\b(du|dein\w*|dir|dich|gib|habe|lass|wähle|bestätige|versuche|verwende|kontaktiere)\b", re.IGNORECASE
)
ENGLISH = re.compile(r"\b(the|your|you|sent|please|have|is|not|has)\b", re.IGNORECASE)
ELSEWHERE = ("openid_connect", "mfa_login_webauthn")
"""Addresses that lead to a provider, or answer a browser's script."""
WITH_VALUES = ("confirm-email/nothing/", "password/reset/key/1-nothing/")
UNUSED = {"cannot_remove_primary_email", "max_email_addresses", "username_blacklisted"}
"""Refusals of pages that are not among the portal's: nobody changes addresses, and nobody has another name."""


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    mail_reaches_people(settings)
    settings.ACCOUNT_EMAIL_NOTIFICATIONS = True


def german(person: User | None = None) -> Client:
    client = signed_in(person) if person is not None else Client()
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de-DE,de;q=0.9"
    return client


def addresses() -> list[str]:
    """All of allauth's, below /accounts/."""
    routes = [route for route, name in _routes(accounts.urlpatterns) if not name.startswith(ELSEWHERE)]
    return [*(route for route in routes if not re.search(r"[<(]", route)), *WITH_VALUES]


def _routes(patterns: Sequence[Any], before: str = "") -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route, pattern.name or ""
        else:
            yield from _routes(pattern.url_patterns, route)


def refuse_familiar(text: str) -> None:
    """Refuse German that is no *Sie*, and what is no German."""
    assert [*FAMILIAR.findall(text), *ENGLISH.findall(text)] == [], " ".join(text.split())


def read_page(response: Any) -> None:
    assert '<html lang="de">' in response.text
    refuse_familiar(" ".join(texts_of(response.text)))


def test_no_page_of_an_account_says_du_or_is_english() -> None:
    decides(op_offers_plans(), "policy", open="on", domain_limit="5")
    ann = User.objects.create_user(ANN, builders.PASSWORD, language="de")
    EmailAddress.objects.create(user=ann, email=ANN, verified=True, primary=True)
    assert {"password/reset/", "password/change/", "2fa/totp/activate/", "signup/"} <= set(addresses())
    for browser in (german(), german(ann), proved(ann)):
        for address in addresses():
            response = browser.get(f"/accounts/{address}", follow=True)
            if response.headers["Content-Type"].startswith("text/html"):
                read_page(response)
    factors.an_app(ann)
    for address in ("2fa/", "2fa/recovery-codes/", "2fa/totp/deactivate/", "2fa/reauthenticate/"):
        read_page(proved(ann).get(f"/accounts/{address}", follow=True))


def proved(person: User) -> Client:
    """A browser in which the password was typed a moment ago, as allauth asks before a second factor."""
    client = german(person)
    client.post("/accounts/reauthenticate/", {"password": builders.PASSWORD})
    return client


def test_what_a_form_refuses_says_sie() -> None:
    ann = User.objects.create_user(ANN, builders.PASSWORD, language="de")
    for path, form in (
        ("password/change/", {"oldpassword": "wrong", "password1": NEW, "password2": "another secret"}),
        ("password/change/", {"oldpassword": builders.PASSWORD, **typed_twice("1")}),
        ("reauthenticate/", {"password": "wrong"}),
    ):
        read_page(german(ann).post(f"/accounts/{path}", form))
    for _ in range(7):
        page = german().post("/accounts/login/", {"login": ANN, "password": "wrong"}).text
    assert "Zu viele gescheiterte Anmeldungen" in page
    with override("de"):
        for adapter in (DefaultAccountAdapter, DefaultMFAAdapter):
            for code, sentence in adapter.error_messages.items():
                if code not in UNUSED:
                    refuse_familiar(str(sentence))


def test_a_password_is_set_anew_in_german_from_the_mail_to_the_last_page() -> None:
    decides(op_offers_plans(), "policy", open="on", domain_limit="5")
    ann = User.objects.create_user(ANN, builders.PASSWORD, language="de")
    EmailAddress.objects.create(user=ann, email=ANN, verified=True, primary=True)
    for path in ("password/reset/", "signup/"):
        for email in (ANN, "eve@nowhere.example"):
            read_page(german().post(f"/accounts/{path}", {"email": email, **typed_twice(NEW)}, follow=True))
    (path,) = re.findall(r"http://testserver(/accounts/password/reset/key/\S+)", str(mail.outbox[0].body))
    browser = german()
    form = browser.get(path, follow=True)
    read_page(form)
    read_page(browser.post(form.redirect_chain[-1][0], typed_twice(NEW), follow=True))
    assert "Dieser Link gilt nicht" in browser.get(path, follow=True).text
    browser = german(User.objects.get(pk=ann.pk))
    typed = {"oldpassword": NEW, **typed_twice("a still longer secret")}
    read_page(browser.post("/accounts/password/change/", typed, follow=True))
    read_page(browser.post("/accounts/logout/", follow=True))
    assert [message.subject.removeprefix("ClusterTab: ") for message in mail.outbox] == [
        "Legen Sie Ihr Passwort fest",
        "Kein Konto mit dieser Adresse",
        "Sie haben schon ein Konto",
        "Bestätigen Sie Ihre Adresse",
        "Passwort zurücksetzen",
        "Passwort geändert",
    ]
    for message in mail.outbox:
        refuse_familiar(re.sub(r"\S+@\S+|https?://\S+", "", f"{message.subject} {message.body}"))


def typed_twice(password: str) -> dict[str, str]:
    return {"password1": password, "password2": password}
