"""Signing in by a real OpenID Connect provider: the way there and back, with code, PKCE, tokens and user info."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client

from portal.core.tenants.models import IdentityProvider, Membership, User
from portal.core.vault import seal
from tests.integration.oidc_lab import SECRET, OidcLab, a_provider
from tests.web.house import House, a_house
from tests.web.test_second_factor import an_app, code, is_in
from tests.web.test_single_sign_on import DAN, FILE

pytestmark = pytest.mark.django_db

BEGIN = "/accounts/oidc/uni/login/"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcLab]:
    with a_provider(tmp_path_factory.mktemp("oidc")) as lab:
        yield lab


@pytest.fixture
def house() -> House:
    return a_house(close=False)


@pytest.fixture
def uni(house: House, lab: OidcLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IdentityProvider:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    text = FILE.replace("https://login.vision.example", lab.url)
    text = text.replace('tenant_claim = "org"', 'tenant_claim = "org"\nscopes = ["groups"]')
    (tmp_path / "sso.toml").write_text(text)
    call_command("apply", tmp_path / "sso.toml")
    cache.clear()  # other tests of this minute may have signed in as often as one address may
    return IdentityProvider.objects.get()


def enters(browser: Client, lab: OidcLab, who: str, path: str = BEGIN) -> Any:
    """The page on which the browser ends."""
    there = browser.get(path).headers["Location"]
    assert there.startswith(f"{lab.url}/auth?")
    return browser.get(lab.sign_in(there, who), follow=True)


def test_dan_comes_in_with_the_role_of_his_group_and_goes_on_to_his_page(
    lab: OidcLab, uni: IdentityProvider
) -> None:
    lab.says("dan", email="Dan@vision.example", email_verified=True, groups=["vision-finance"], org="org-17")
    browser = Client()
    last = enters(browser, lab, "dan", f"{BEGIN}?next=/t/vision-lab/invoices/")
    assert last.redirect_chain[-1][0] == "/t/vision-lab/invoices/"
    assert last.status_code == 200
    dan = User.objects.get(email=DAN)
    assert [*Membership.objects.filter(user=dan).values_list("tenant__slug", "role", "through")] == [
        ("vision-lab", "billing", "uni")
    ]
    (account,) = SocialAccount.objects.all()
    assert (account.uid, account.extra_data, SocialToken.objects.count()) == ("dan", {}, 0)
    lab.says("dan", email="dan@vision.example", email_verified=True, groups=["auditors"], org=["org-17"])
    enters(Client(), lab, "dan")
    assert dict(Membership.objects.filter(user=dan).values_list("tenant__slug", "role")) == {
        "vision-lab": "member",
        "speech-lab": "viewer",
    }
    assert SocialAccount.objects.get().extra_data == {}


def test_nobody_comes_in_by_an_unverified_address_or_one_of_another_domain(
    lab: OidcLab, house: House, uni: IdentityProvider
) -> None:
    lab.says("eve", email="ben@vision.example", email_verified=False, groups=["vision-finance"])
    lab.says("mal", email="eve@speech.example", email_verified=True)
    browser = Client()
    last = enters(browser, lab, "eve")
    assert "does not say that your e-mail address is verified" in last.text
    assert not is_in(browser)
    last = enters(browser, lab, "mal")
    assert "does not speak for addresses such as eve@speech.example" in last.text
    assert not is_in(browser)
    assert not SocialAccount.objects.exists()


def test_ben_keeps_his_account_and_his_second_factor_is_asked_for(
    lab: OidcLab, house: House, uni: IdentityProvider
) -> None:
    secret = an_app(house.ben)
    lab.says("ben", email="ben@vision.example", email_verified=True)
    browser = Client()
    last = enters(browser, lab, "ben")
    assert last.redirect_chain[-1][0].startswith("/accounts/2fa/authenticate/")
    assert not is_in(browser)
    assert "ben@vision.example" not in str(dict(browser.session))  # nor a token, nor what was said of him
    browser.post("/accounts/2fa/authenticate/", {"code": code(secret)})
    assert is_in(browser)
    assert SocialAccount.objects.get().user == house.ben


def test_the_request_has_pkce_and_nothing_that_an_address_smuggles_in(
    lab: OidcLab, uni: IdentityProvider
) -> None:
    path = f"{BEGIN}?process=connect&scope=admin&auth_params=prompt%3Dnone%26state%3Dmine&next=https://evil.example/"
    query = parse_qs(urlsplit(Client().get(path).headers["Location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    assert set(query["scope"][0].split()) == {"openid", "profile", "email", "groups"}
    assert "prompt" not in query
    assert query["state"] != ["mine"]
    lab.says("dan", email="dan@vision.example", email_verified=True)
    last = enters(Client(), lab, "dan", path)
    assert "evil.example" not in str(last.redirect_chain)


def test_an_answer_belongs_to_the_browser_that_asked_and_works_once(
    lab: OidcLab, uni: IdentityProvider
) -> None:
    lab.says("dan", email="dan@vision.example", email_verified=True)
    browser, stranger = Client(), Client()
    back = lab.sign_in(browser.get(BEGIN).headers["Location"], "dan")
    assert "did not work" in stranger.get(back, follow=True).text
    assert not is_in(stranger)
    browser.get(back)
    assert is_in(browser)
    browser.logout()
    assert "did not work" in browser.get(back, follow=True).text
    assert not is_in(browser)


def test_dan_signs_out_here_and_at_the_provider(lab: OidcLab, uni: IdentityProvider) -> None:
    IdentityProvider.objects.update(sign_out=True)
    lab.says("dan", email="dan@vision.example", email_verified=True)
    browser = Client()
    with httpx.Client(trust_env=False) as window:
        browser.get(lab.sign_in(browser.get(BEGIN).headers["Location"], "dan", window))
        assert is_in(browser)
        left = browser.post("/accounts/logout/", follow=True)
        assert left.redirect_chain == [("/accounts/oidc/uni/sign-out/", 302)]
        assert not is_in(browser)
        assert "You are signed out here" in left.text
        there = left.headers["Refresh"].removeprefix("0; url=")
        assert there.startswith(f"{lab.url}/session/end?client_id=clustertab&")
        assert "id_token_hint" not in there
        assert lab.knows(browser.get(BEGIN).headers["Location"], window)
        assert lab.sign_out(there, window) == "/accounts/login/"
        assert not lab.knows(browser.get(BEGIN).headers["Location"], window)


def test_a_wrong_secret_and_a_provider_that_is_away_are_told(lab: OidcLab, uni: IdentityProvider) -> None:
    lab.says("dan", email="dan@vision.example", email_verified=True)
    IdentityProvider.objects.update(client_secret=seal("another-secret-than-that"))
    browser = Client()
    assert "did not work. Begin again here." in enters(browser, lab, "dan").text
    assert not is_in(browser)
    IdentityProvider.objects.update(url="http://127.0.0.1:9")
    away = browser.get(BEGIN, follow=True)
    assert "cannot be reached. Try again later" in away.text
