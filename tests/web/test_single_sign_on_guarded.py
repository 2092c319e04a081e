# ruff: noqa: F401, F811 - fixtures are imported by their names
"""What an identity provider cannot do: bring back who was removed, speak for others, or be another one than it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from allauth.account.models import EmailAddress
from django.core.cache import cache
from django.test import Client
from requests import Session

from portal.core.audit.models import AuditEntry
from portal.core.tenants import team
from portal.core.tenants.models import IdentityGrant, IdentityProvider, Membership, User
from portal.core.tenants.single_sign_on import SignOnError
from portal.web.single_sign_on import Providers
from tests.web.house import House, signed_in
from tests.web.test_second_factor import long_ago
from tests.web.test_single_sign_on import DAN, _world, begun, comes, house, roles, uni
from tests.web.test_team import CHANGE, does, member

pytestmark = pytest.mark.django_db

ISSUER = "https://login.vision.example"
DAN_SAYS = {"sub": "s1", "email": DAN, "email_verified": True}


class Answer:
    """Of the provider, as allauth reads it."""

    status_code = 200

    def __init__(self, body: Any) -> None:
        self.body, self.headers, self.content = body, {"content-type": "application/json"}, b""

    def raise_for_status(self) -> None:
        return

    def json(self) -> Any:
        return self.body


class FakeProvider(Session):
    """What a provider answers, whatever that may be; a real one is in tests/integration."""

    issuer = ISSUER
    info: Any = DAN_SAYS

    def __init__(self) -> None:
        super().__init__()
        self.token: Any = {"access_token": "x", "token_type": "bearer", "id_token": self.id_token()}

    def id_token(self, **more: Any) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": "clustertab", "iat": now, "exp": now + 60, "sub": "s1"}
        return jwt.encode(claims | more, "k" * 40, algorithm="HS256")

    def get(self, url: Any, **_: Any) -> Any:  # type: ignore[override]
        if "well-known" not in str(url):
            return Answer(self.info)
        names = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")
        return Answer({"issuer": self.issuer, **{name: f"{ISSUER}/{name}" for name in names}})

    def request(self, *_: Any, **__: Any) -> Any:
        return Answer(self.token)

    def post(self, *_: Any, **__: Any) -> Any:
        return Answer(self.token)


@pytest.fixture
def provider(uni: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    fake = FakeProvider()
    monkeypatch.setattr(Providers, "get_requests_session", lambda self: fake)
    cache.clear()
    yield fake
    cache.clear()


def goes(browser: Client) -> dict[str, list[str]]:
    """To the provider and back; what the provider was asked."""
    there = browser.get("/accounts/oidc/uni/login/")
    query = parse_qs(urlsplit(there.headers["Location"]).query)
    back = browser.get(f"/accounts/oidc/uni/login/callback/?code=abc&state={query['state'][0]}")
    assert back.status_code == 302, back.content
    return query


def is_in(browser: Client) -> bool:
    return "_auth_user_id" in browser.session


@pytest.mark.parametrize("act", ["remove", "leave", "admin"])
@pytest.mark.parametrize("who", ["invited", "by grant", "by grant and then by hand"])
def test_nobody_who_was_removed_or_left_is_brought_back(
    house: House,
    uni: IdentityProvider,
    act: str,
    who: str,
) -> None:
    email = "ben@vision.example" if who == "invited" else DAN
    if who != "invited":
        comes(uni, DAN)
    if who == "by grant and then by hand":
        does(house.ann, "role", member=member(DAN).pk, role="viewer")
    if act == "remove":
        does(house.ann, "remove", member=member(email).pk)
    elif act == "leave":
        team.leave(tenant=house.vision, user=User.objects.get(email=email))
    else:
        address = f"/admin/tenants/membership/{member(email).pk}/delete/"
        assert signed_in(house.op).post(address, {"post": "yes"}).status_code == 302

    comes(uni, email)

    assert roles(email) == {}


def test_a_role_that_op_gives_in_the_administration_stays(house: House, uni: IdentityProvider) -> None:
    comes(uni, DAN, "vision-finance")
    row = member(DAN)
    fields = {"user": row.user_id, "tenant": row.tenant_id, "through": row.through, "scheduler_users": ""}
    address = f"/admin/tenants/membership/{row.pk}/change/"
    assert signed_in(house.op).post(address, fields | {"role": "viewer"}).status_code == 302

    comes(uni, DAN, "vision-finance")

    assert roles() == {"vision-lab": "viewer"}


def test_a_provider_that_lost_a_domain_signs_in_nobody_of_it(house: House, uni: IdentityProvider) -> None:
    comes(uni, DAN)
    IdentityGrant.objects.filter(domain="vision.example").delete()
    uni.domains = ["vision.edu"]
    uni.save()

    with pytest.raises(SignOnError, match="does not speak for addresses such as dan@vision"):
        comes(uni, DAN)


def test_whoever_got_another_address_here_does_not_come_in_by_the_old_one(
    house: House,
    uni: IdentityProvider,
) -> None:
    EmailAddress.objects.create(user=house.ann, email=house.ann.email, verified=True, primary=True)
    comes(uni, house.ann.email, subject="old-ann")
    house.ann.email = "new@elsewhere.example"
    house.ann.save()

    with pytest.raises(SignOnError, match="does not speak for addresses such as new@elsewhere"):
        comes(uni, "ann@vision.example", subject="old-ann")


def test_the_history_names_the_account_and_no_address_that_is_only_claimed(
    house: House,
    provider: FakeProvider,
) -> None:
    goes(Client())
    IdentityGrant.objects.filter(domain="vision.example").update(role="viewer")
    provider.info = {"sub": "s1", "email": "ann@vision.example", "email_verified": False}

    goes(Client())

    whose = AuditEntry.objects.of_table(Membership).order_by("pk").values_list("who", flat=True)
    assert set(whose[len(whose) - 2 :]) == {DAN}


@pytest.mark.parametrize("token", [{}, {"id_token": ""}])
def test_an_answer_without_a_token_that_says_who_the_provider_is_signs_in_nobody(
    house: House,
    provider: FakeProvider,
    token: dict[str, str],
) -> None:
    provider.token = {"access_token": "x", "token_type": "bearer", **token}
    browser = Client()
    goes(browser)
    assert not is_in(browser)


def test_another_issuer_than_the_configured_one_signs_in_nobody(house: House, provider: FakeProvider) -> None:
    browser = Client()
    goes(browser)
    assert is_in(browser)

    provider.issuer = "https://evil.example"
    provider.token["id_token"] = provider.id_token()
    browser = Client()
    goes(browser)
    assert not is_in(browser)


def test_who_is_signed_in_already_is_asked_by_the_provider(house: House, provider: FakeProvider) -> None:
    browser = Client()
    assert "prompt" not in goes(browser)
    query = goes(browser)
    assert (query["prompt"], query["max_age"]) == (["login"], ["0"])


@pytest.mark.parametrize(("minutes", "proves"), [(1, True), (30, False)])
def test_a_provider_that_asked_long_ago_proves_nothing_again(
    house: House, provider: FakeProvider, minutes: int, proves: bool
) -> None:
    browser = Client()
    goes(browser)
    long_ago(browser, minutes=31)
    before = browser.session["account_authentication_methods"]
    provider.token["id_token"] = provider.id_token(auth_time=int(time.time()) - 60 * minutes)

    goes(browser)

    assert is_in(browser)
    assert (browser.session["account_authentication_methods"] != before) == proves
    if not proves:
        assert "did not ask again who you are" in browser.get("/", follow=True).content.decode()


def test_an_owner_without_a_password_proves_at_the_provider_before_a_transfer(
    house: House,
    provider: FakeProvider,
    settings: Any,
) -> None:
    settings.CLUSTERTAB_REAUTHENTICATION_MINUTES = 30
    IdentityGrant.objects.filter(domain="vision.example").update(role="owner")
    dan = Client()
    goes(dan)
    long_ago(dan, minutes=31)
    sent = {"act": "transfer", "member": member("ben@vision.example").pk}

    led = dan.post(CHANGE, sent, headers={"Referer": "http://testserver/t/vision-lab/team/?x=1"})

    assert led.headers["Location"] == "/accounts/oidc/uni/login/?next=%2Ft%2Fvision-lab%2Fteam%2F"
    assert roles("ben@vision.example") == {"vision-lab": "member"}
    goes(dan)
    dan.post(CHANGE, sent)
    assert roles("ben@vision.example") == {"vision-lab": "owner"}


def test_very_many_begin_no_more(house: House, provider: FakeProvider) -> None:
    answers = [Client().get("/accounts/oidc/uni/login/").status_code for _ in range(40)]
    assert (answers[0], answers[-1]) == (302, 429)


@pytest.mark.parametrize(
    "info",
    [
        *(
            {"sub": sub, "email": DAN, "email_verified": True}
            for sub in ("a\x00b", "\ud800", "s" * 5000, 7, ["a"])
        ),
        *(
            {"sub": "s1", "email": email, "email_verified": True}
            for email in ("\ud800@vision.example", "x" * 300, 7)
        ),
        *({}, [], "x", None, 7),
    ],
)
def test_odd_answers_are_a_sentence(house: House, provider: FakeProvider, info: Any) -> None:
    provider.info = info
    goes(Client())


@pytest.mark.parametrize(
    "token",
    [
        *({}, [], None, {"access_token": None}),
        {"access_token": "x", "expires_in": 10**30},
        {"access_token": "x", "id_token": 7},
        {"access_token": "x", "id_token": "a.b.c"},
    ],
)
def test_odd_tokens_are_a_sentence(house: House, provider: FakeProvider, token: Any) -> None:
    provider.token = token
    browser = Client()
    goes(browser)
    assert not is_in(browser)
