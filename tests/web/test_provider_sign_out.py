"""Signing out here leads on to the provider that one came by, where operators want it. With a real provider:
`tests/integration/test_single_sign_on.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from allauth.account.internal.flows.login import record_authentication
from django.test import Client, RequestFactory

from portal.core.tenants.models import IdentityProvider
from portal.core.vault import seal
from portal.web.single_sign_on import Providers
from tests.web.house import House, a_house, signed_in

pytestmark = pytest.mark.django_db

LEAVE, PAGE = "/accounts/logout/", "/accounts/oidc/uni/sign-out/"


@pytest.fixture
def house() -> House:
    return a_house(close=False)


@pytest.fixture
def uni() -> IdentityProvider:
    return IdentityProvider.objects.create(
        name="uni", title="<b>Uni</b>", url="https://login.vision.example", client_id="clustertab",
        client_secret=seal("secret"), domains=["vision.example"], sign_out=True,
    )  # fmt: skip


def came_by(house: House, *providers: str) -> Client:
    browser = signed_in(house.ann)
    request = RequestFactory().get("/")
    request.session = session = browser.session
    for name in providers:
        record_authentication(request, house.ann, "socialaccount", provider=name, uid="ann")
    record_authentication(request, house.ann, "mfa", type="totp")
    session.save()
    return browser


def answers(monkeypatch: pytest.MonkeyPatch, config: Any) -> None:
    """What the provider says of itself."""

    class Answer:
        def raise_for_status(self) -> None:
            pass

        def json(self) -> Any:
            return config

    class Session:
        def get(self, url: str) -> Answer:
            assert url == "https://login.vision.example/.well-known/openid-configuration"
            return Answer()

    @contextmanager
    def session(_self: Providers) -> Iterator[Session]:
        yield Session()

    monkeypatch.setattr(Providers, "get_requests_session", session)


def test_only_who_came_by_a_provider_that_is_to_know_is_led_there(
    house: House, uni: IdentityProvider
) -> None:
    assert came_by(house, "uni").post(LEAVE).headers["Location"] == PAGE
    assert signed_in(house.ann).post(LEAVE).headers["Location"] != PAGE
    assert came_by(house, "gone").post(LEAVE).headers["Location"] != PAGE
    assert came_by(house, "uni").get(PAGE).headers["Location"] == LEAVE  # an address signs nobody out
    IdentityProvider.objects.update(sign_out=False)
    assert came_by(house, "uni").post(LEAVE).headers["Location"] != PAGE
    assert Client().get(PAGE).status_code == 404


@pytest.mark.parametrize(
    "config",
    [
        {},
        [],
        {"end_session_endpoint": 7},
        {"end_session_endpoint": "http://login.vision.example/end"},
        {"end_session_endpoint": "javascript:alert(1)"},
        {"end_session_endpoint": "https://login.vision.example@evil.example/end"},
        {"end_session_endpoint": "https://login.vision.example/end\r\nSet-Cookie: a=b"},
        {"end_session_endpoint": "https://[x/end"},
    ],
)
def test_a_provider_without_a_safe_address_is_told_of(
    uni: IdentityProvider, monkeypatch: pytest.MonkeyPatch, config: Any
) -> None:
    answers(monkeypatch, config)
    shown = Client().get(PAGE)
    assert "Refresh" not in shown.headers
    assert "&lt;b&gt;Uni&lt;/b&gt; cannot be asked to sign you out." in shown.text


def test_the_address_names_us_and_the_way_back(
    uni: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, {"end_session_endpoint": "https://login.vision.example/end?realm=a"})
    there = (
        "https://login.vision.example/end?realm=a&client_id=clustertab"
        "&post_logout_redirect_uri=http%3A%2F%2Ftestserver%2Faccounts%2Flogin%2F"
    )
    shown = Client().get(PAGE)
    assert shown.headers["Refresh"] == f"0; url={there}"
    assert f'href="{there.replace("&", "&amp;")}"' in shown.text
