"""A second factor, how long a session lasts, and the proof before money and secrets. Op may require all of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.usersessions.models import UserSession
from django.core import mail
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client

from portal.api.models import ApiKey
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Tenant, User
from portal.core.vault.sealing import Sealed
from tests import builders, sharing
from tests.web.house import House, a_house, signed_in

pytestmark = pytest.mark.django_db

LOGIN, SECOND = "/accounts/login/", "/accounts/2fa/authenticate/"
OVERVIEW, KEYS = "/t/vision-lab/", "/t/vision-lab/api-keys/change/"
NEW_KEY = {"act": "create", "name": "export", "scopes": ["usage:read"]}


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    cache.clear()


def enters(person: User, password: str = builders.PASSWORD) -> Client:
    """A browser in which the password was typed."""
    client = Client()
    client.post(LOGIN, {"login": person.email, "password": password})
    return client


def is_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def code(secret: str) -> str:
    return str(format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time())))))


def an_app(person: User) -> str:
    """Its secret, of an app that is set up; and codes for the day on which it is lost."""
    secret = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
    TOTP.activate(person, secret)
    RecoveryCodes.activate(person)
    return secret


def test_ann_sets_up_an_app_and_needs_it_from_then_on(house: House) -> None:
    ann = enters(house.ann)
    assert "Two-factor authentication" in ann.get("/accounts/2fa/").text
    asked = ann.get("/accounts/2fa/totp/activate/")
    assert asked.headers["Location"].startswith("/accounts/reauthenticate/?next=")
    proof = ann.get(asked.headers["Location"]).text
    assert "your sign-in: confirm it first. Nothing has changed yet." in proof
    assert "some time ago" not in proof  # she signed in a moment ago
    form = ann.post(asked.headers["Location"], {"password": builders.PASSWORD}, follow=True)
    assert form.redirect_chain[-1][0] == "/accounts/2fa/totp/activate/"
    assert 'src="data:image/svg+xml' in form.text
    found = re.search(r'id="authenticator_secret"[^>]*value="([A-Z2-7]+)"', form.text)
    assert found is not None
    assert "Incorrect code" in ann.post("/accounts/2fa/totp/activate/", {"code": "000000"}).text
    done = ann.post("/accounts/2fa/totp/activate/", {"code": code(found[1])}, follow=True)
    assert len(re.findall(r"<code>\d{8}</code>", done.text)) == 10
    row = Authenticator.objects.get(user=house.ann, type="totp")
    assert found[1] not in str(row.data)
    assert Sealed(row.data["secret"]).reveal() == found[1]
    again = enters(house.ann)
    assert not is_in(again)
    assert "Second factor" in again.get(SECOND).text
    cache.clear()  # a code is taken once
    again.post(SECOND, {"code": code(found[1])})
    assert is_in(again)


def test_a_wrong_code_opens_nothing_and_a_code_is_taken_once(house: House) -> None:
    secret = an_app(house.ann)
    first, second = enters(house.ann), enters(house.ann)
    assert first.get(OVERVIEW).status_code == 302
    assert "Incorrect code" in first.post(SECOND, {"code": "123456"}).text
    now = code(secret)
    first.post(SECOND, {"code": now})
    second.post(SECOND, {"code": now})
    assert (is_in(first), is_in(second)) == (True, False)


def test_a_recovery_code_signs_in_once(house: House) -> None:
    an_app(house.ann)
    codes = RecoveryCodes(Authenticator.objects.get(user=house.ann, type="recovery_codes"))
    (spare, *_rest) = codes.get_unused_codes()
    for works in (True, False):
        browser = enters(house.ann)
        browser.post(SECOND, {"code": spare})
        assert is_in(browser) is works


def test_wrong_passwords_are_limited_for_each_account(house: House, settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {"login_failed": "3/5m/key"}
    for _ in range(3):
        assert not is_in(enters(house.ann, "wrong"))
    assert not is_in(enters(house.ann)), "the right one comes too late"
    assert is_in(enters(house.ben))


def test_operators_need_a_second_factor_where_the_setting_says_so(house: House, settings: Any) -> None:
    settings.CLUSTERTAB_OPERATOR_SECOND_FACTOR = True
    op = signed_in(house.op)
    for path in ("/operator/clusters/", "/admin/", OVERVIEW, "/metrics"):
        answer = op.get(path)
        assert (path, answer.status_code, answer.headers.get("Location")) == (path, 302, "/accounts/2fa/")
    assert op.post("/operator/people/", {"act": "take"}).headers["Location"] == "/accounts/2fa/"
    part = op.get("/operator/clusters/", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["HX-Redirect"]) == (401, "/accounts/2fa/")
    assert "Operators need a second factor here." in op.get("/accounts/2fa/").text
    assert signed_in(house.ann).get(OVERVIEW).status_code == 200
    an_app(house.op)
    assert op.get("/operator/clusters/").status_code == 200


def test_recovery_codes_alone_are_no_second_factor(house: House, settings: Any) -> None:
    settings.CLUSTERTAB_OPERATOR_SECOND_FACTOR = True
    RecoveryCodes.activate(house.op)
    assert signed_in(house.op).get("/operator/clusters/").status_code == 302


def test_an_owner_requires_a_second_factor_of_her_tenant(house: House) -> None:
    ann, ben = signed_in(house.ann), signed_in(house.ben)
    change = {"act": "second_factor", "required": "yes"}
    assert ben.post("/t/vision-lab/team/change/", change).status_code == 404
    ann.post("/t/vision-lab/team/change/", change)
    entry = AuditEntry.objects.of_table(Tenant).latest("pk")
    assert (entry.after, entry.who) == ({"second_factor": True}, house.ann.email)
    assert ben.get(OVERVIEW).headers["Location"] == "/accounts/2fa/"
    assert ben.post("/t/vision-lab/team/leave/").headers["Location"] == "/accounts/2fa/"
    assert "Vision Lab asks its members for a second factor." in ben.get("/accounts/2fa/").text
    assert signed_in(house.eve).get("/t/speech-lab/").status_code == 200
    assert signed_in(house.eve).get(OVERVIEW).status_code == 404
    assert signed_in(house.op).get(OVERVIEW).status_code == 200
    an_app(house.ben)
    assert ben.get(OVERVIEW).status_code == 200
    an_app(house.ann)
    ann.post("/t/vision-lab/team/change/", {"act": "second_factor"})
    assert signed_in(house.carla).get(OVERVIEW).status_code == 200


def test_before_secrets_whoever_signed_in_long_ago_proves_who_they_are_and_goes_on(
    house: House, settings: Any
) -> None:
    settings.CLUSTERTAB_REAUTHENTICATION_MINUTES = 30
    ann = enters(house.ann)
    assert ann.post(KEYS, NEW_KEY).headers["Location"] == "/t/vision-lab/api-keys/"
    long_ago(ann, minutes=31)
    asked = ann.post(KEYS, NEW_KEY | {"name": "second"})
    assert asked.headers["Location"] == f"/accounts/reauthenticate/?next={KEYS.replace('/', '%2F')}"
    assert ApiKey.objects.count() == 1
    proof = asked.headers["Location"]
    assert "Confirm that it is you" in ann.get(proof).text
    assert "incorrect" in ann.post(proof, {"password": "wrong", "next": KEYS}).text.lower()
    assert ApiKey.objects.count() == 1
    ann.post(proof, {"password": builders.PASSWORD, "next": KEYS})
    assert [key.name for key in ApiKey.objects.order_by("pk")] == ["export", "second"]
    ann.post(KEYS, NEW_KEY | {"name": "third"})
    assert ApiKey.objects.count() == 3


@pytest.mark.parametrize(
    ("who", "path", "form"),
    [
        ("ann", "/t/vision-lab/payment/card/", {}),
        ("carla", "/t/vision-lab/payment/automatic/", {}),
        ("carla", "/t/vision-lab/billing/change/", {}),
        ("ann", KEYS, {"act": "rotate"}),
        ("ann", "/t/vision-lab/team/change/", {"act": "transfer"}),
        ("ann", "/t/vision-lab/team/change/", {"act": "second_factor"}),
        ("op", "/operator/people/", {"act": "give"}),
        ("op", "/operator/receivables/", {"act": "refund", "tenant": "vision-lab"}),
        ("op", "/operator/api-keys/", {"act": "create"}),
        ("ann", "/t/vision-lab/webhooks/change/", {"act": "rotate", "webhook": "hook"}),
        ("op", "/operator/webhooks/", {"act": "create"}),
    ],
)
def test_money_and_secrets_ask_for_a_recent_proof(
    house: House, settings: Any, who: str, path: str, form: dict[str, str]
) -> None:
    settings.CLUSTERTAB_REAUTHENTICATION_MINUTES = 30
    if form.get("act") == "transfer":
        form = form | {"member": str(house.ben.memberships.get().pk)}
    browser = enters(getattr(house, who))
    long_ago(browser, minutes=31)
    assert browser.post(path, form).headers["Location"].startswith("/accounts/reauthenticate/?next=")


def test_ending_a_key_needs_no_proof(house: House, settings: Any) -> None:
    settings.CLUSTERTAB_REAUTHENTICATION_MINUTES = 30
    ann = enters(house.ann)
    ann.post(KEYS, NEW_KEY)
    long_ago(ann, minutes=31)
    ann.post(KEYS, {"act": "revoke", "key": ApiKey.objects.get().pk})
    assert ApiKey.objects.get().revoked_at is not None


def test_a_session_ends_after_its_hours_and_when_nobody_is_there(house: House, settings: Any) -> None:
    settings.CLUSTERTAB_SESSION_HOURS, settings.CLUSTERTAB_SESSION_IDLE_MINUTES = 8, 60
    now = int(datetime.now(UTC).timestamp())

    def opened(**times: int) -> int:
        browser = enters(house.ann)
        browser.get(OVERVIEW)
        session = browser.session
        session.update({name: now - seconds for name, seconds in times.items()})
        session.save()
        return browser.get(OVERVIEW).status_code

    assert opened(begun_at=8 * 3600 - 60, seen_at=60) == 200
    assert opened(begun_at=8 * 3600, seen_at=60) == 302
    assert opened(begun_at=7200, seen_at=3600 - 60) == 200
    assert opened(begun_at=7200, seen_at=3600) == 302


def test_ben_sees_where_he_is_signed_in_and_signs_out_everywhere_else(house: House) -> None:
    here, there = enters(house.ben), enters(house.ben)
    assert UserSession.objects.filter(user=house.ben).count() == 2
    assert "This one" in here.get("/accounts/sessions/").text
    here.post("/accounts/sessions/")
    assert (here.get(OVERVIEW).status_code, there.get(OVERVIEW).status_code) == (200, 302)


def test_where_mail_reaches_people_an_address_is_proved_once(house: House, settings: Any) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    first = Client().post(LOGIN, {"login": house.ann.email, "password": builders.PASSWORD}, follow=True)
    assert first.redirect_chain[-1][0] == "/accounts/confirm-email/"
    (message,) = mail.outbox
    (path,) = re.findall(r"http://testserver(/accounts/confirm-email/\S+)", str(message.body))
    assert "Is ann@vision.example your address?" in Client().get(path).text
    Client().post(path)
    assert EmailAddress.objects.get(user=house.ann).verified
    assert is_in(enters(house.ann))
    assert "This link is not valid" in Client().get("/accounts/confirm-email/abc/").text


def test_secrets_of_apps_get_the_new_key_with_all_others(house: House, settings: Any) -> None:
    from cryptography.fernet import Fernet

    secret = an_app(house.ann)
    new = Fernet.generate_key().decode()
    settings.CLUSTERTAB_SECRET_KEYS = [new, *settings.CLUSTERTAB_SECRET_KEYS]
    call_command("rotate_secrets")
    settings.CLUSTERTAB_SECRET_KEYS = [new]
    assert Sealed(Authenticator.objects.get(user=house.ann, type="totp").data["secret"]).reveal() == secret


def test_every_page_of_an_account_stands_in_the_portals_frame(house: House) -> None:
    ben = enters(house.ben)
    for path in ("2fa/", "2fa/webauthn/", "password/change/", "sessions/"):
        text = ben.get(f"/accounts/{path}").text
        assert 'class="ct-shell"' in text, path
        assert 'aria-label="Settings"' in text, path


def long_ago(browser: Client, *, minutes: int) -> None:
    """The sign-in was so long ago."""
    session = browser.session
    for record in session["account_authentication_methods"]:
        record["at"] -= minutes * 60
    session.save()
