"""People of an organization sign in by its identity provider: whose account it is, and what they may, operators decide.

How the provider is asked, `tests/integration/test_single_sign_on.py` tries against a real one.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.core import mail
from django.core.management import call_command
from django.test import Client

from portal.core.audit.models import AuditEntry
from portal.core.tenants import invitations, team
from portal.core.tenants.models import (
    Exclusion,
    IdentityGrant,
    IdentityProvider,
    Membership,
    OperatorRole,
    Role,
    User,
)
from portal.core.tenants.single_sign_on import Claims, SignOnError, admit
from portal.core.tenants.tasks import send_account_mails
from portal.env import ROOT
from portal.ops.cli import RefusedError
from portal.web.single_sign_on import claims_of
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_history_page import rows
from tests.web.test_team import does, member

pytestmark = pytest.mark.django_db

NOW = builders.at("2026-04-20 10:00")
SECRET = "the-secret-of-the-client"
FILE = """
[[identity_provider]]
name = "uni"
title = "University of Vision"
url = "https://login.vision.example"
client_id = "clustertab"
client_secret = "env:OIDC_SECRET"
domains = ["vision.example", "vision.edu"]
tenant_claim = "org"

[[identity_provider.grant]]
tenant = "vision-lab"
role = "member"
domain = "vision.example"

[[identity_provider.grant]]
tenant = "vision-lab"
role = "billing"
group = "vision-finance"

[[identity_provider.grant]]
tenant = "speech-lab"
role = "viewer"
claim = "org-17"
group = "auditors"
"""
DAN = "dan@vision.example"


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, "https://tab.example"


def applies(folder: Path, text: str = FILE) -> IdentityProvider:
    (folder / "sso.toml").write_text(text)
    call_command("apply", folder / "sso.toml")
    return IdentityProvider.objects.get(name="uni")


@pytest.fixture
def uni(house: House, tmp_path: Path) -> IdentityProvider:
    return applies(tmp_path)


def claims(email: str = DAN, *groups: str, verified: bool = True, org: str = "", subject: str = "") -> Claims:
    organizations = frozenset({org} - {""})
    return Claims(subject or email, email, verified, frozenset(groups), organizations)


def comes(uni: IdentityProvider, *said: Any, **more: Any) -> User:
    return admit(provider=uni, claims=claims(*said, **more), moment=NOW)


def roles(email: str = DAN) -> dict[str, str]:
    rows = Membership.objects.filter(user__email=email)
    return dict(rows.values_list("tenant__slug", "role"))


def test_whoever_is_new_gets_what_grants_give_and_no_more(uni: IdentityProvider) -> None:
    dan = comes(uni)
    assert roles() == {"vision-lab": "member"}
    assert not dan.has_usable_password()
    assert EmailAddress.objects.get(user=dan).verified
    assert comes(uni) == dan  # said again, nothing changes
    comes(uni, DAN, "vision-finance", "vision-owners", "admin", org="org-17")
    assert roles() == {"vision-lab": "billing"}  # the highest that holds; of a claim alone nothing
    comes(uni, DAN, "auditors", org="org-17")
    assert roles() == {"vision-lab": "member", "speech-lab": "viewer"}
    comes(uni, DAN, "auditors", org="org-18")
    assert roles() == {"vision-lab": "member"}
    assert (dan.operator_role, User.objects.get(pk=dan.pk).operator_role) == ("", "")


def test_owners_are_mailed_and_the_history_says_through_what(house: House, uni: IdentityProvider) -> None:
    comes(uni)
    send_account_mails()
    assert [(m.to, m.subject) for m in mail.outbox] == [([house.ann.email], f"{DAN} joined Vision Lab")]
    first = rows(page(house.ann, "/t/vision-lab/history/?table=tenants_membership"))[0]
    assert f"Member {DAN} added" in first
    assert "through: uni" in first
    assert "by uni</span>" in page(house.ann, "/t/vision-lab/team/")


def test_an_account_is_known_by_its_verified_address_alone(house: House, uni: IdentityProvider) -> None:
    """Ben's, which he has by an invitation: his role stays as Ann gave it."""
    ben = comes(uni, "ben@vision.example", "vision-finance")
    assert ben == house.ben
    assert roles(ben.email) == {"vision-lab": "member"}
    assert (
        comes(uni, "", subject="ben@vision.example", verified=False) == ben
    )  # known by the provider's own name
    for said, code in (
        (claims("carla@vision.example", verified=False), "not-verified"),
        (claims("", subject="carla"), "not-verified"),
        (claims("eve@speech.example"), "not-its-address"),
        (claims("eve@speech.example", "auditors", org="org-17"), "not-its-address"),
        (claims("eve@sub.vision.example"), "not-its-address"),
        (claims("ben@vision.example", subject="somebody else"), "another-link"),
        (claims("nobody@vision.edu"), "no-place"),
    ):
        with pytest.raises(SignOnError) as refused:
            admit(provider=uni, claims=said, moment=NOW)
        assert (said, refused.value.code) == (said, code)
    assert SocialAccount.objects.count() == 1
    assert not User.objects.filter(email="nobody@vision.edu").exists()


def test_a_password_that_was_set_before_the_address_was_proved_is_taken_away(
    house: House, uni: IdentityProvider
) -> None:
    """Whoever chose it need not be who has the address."""
    comes(uni, house.ben.email)
    house.ben.refresh_from_db()
    assert not house.ben.has_usable_password()
    EmailAddress.objects.create(user=house.carla, email=house.carla.email, verified=True, primary=True)
    comes(uni, house.carla.email)
    house.carla.refresh_from_db()
    assert house.carla.has_usable_password()


def test_operators_sign_in_by_it_only_where_it_is_theirs(uni: IdentityProvider) -> None:
    boss = User.objects.create_user("boss@vision.example", operator_role=OperatorRole.ADMIN)
    with pytest.raises(SignOnError, match="operators do not sign in by University of Vision"):
        comes(uni, boss.email)
    assert not SocialAccount.objects.exists()
    assert roles(boss.email) == {}
    IdentityProvider.objects.update(operators=True)
    uni.refresh_from_db()
    assert comes(uni, boss.email) == boss
    IdentityProvider.objects.update(operators=False)  # also who was linked before
    uni.refresh_from_db()
    with pytest.raises(SignOnError, match="operators do not sign in"):
        comes(uni, boss.email)


def test_a_closed_account_stays_closed(house: House, uni: IdentityProvider) -> None:
    comes(uni)
    User.objects.filter(email=DAN).update(is_active=False)
    with pytest.raises(SignOnError, match="is closed"):
        comes(uni)


def test_what_an_owner_did_by_hand_stays(house: House, uni: IdentityProvider) -> None:
    comes(uni, DAN, "vision-finance")
    dan = member(DAN)
    does(house.ann, "role", member=dan.pk, role="viewer")
    comes(uni, DAN, "vision-finance")
    assert roles() == {"vision-lab": "viewer"}
    comes(uni, "eva@vision.example")
    does(house.ann, "remove", member=member("eva@vision.example").pk)
    eva = comes(uni, "eva@vision.example", "vision-finance")
    assert roles(eva.email) == {}
    invitation = invitations.invite(
        tenant=house.vision, email=eva.email, role=Role.MEMBER, by=house.ann.email, moment=NOW
    )
    from portal.core.tenants import invitation_links

    token = invitation_links.path_of(invitation).split("/")[2]
    invitations.accept(token=token, user=eva, moment=NOW)
    assert roles(eva.email) == {"vision-lab": "member"}
    assert not Exclusion.objects.exists()


def test_who_leaves_is_not_brought_back(uni: IdentityProvider) -> None:
    dan = comes(uni)
    team.leave(tenant=member(DAN).tenant, user=dan)
    comes(uni)
    assert roles() == {}


def test_a_tenant_keeps_its_last_owner_whatever_the_provider_says(
    house: House, uni: IdentityProvider
) -> None:
    grant = IdentityGrant.objects.get(group="vision-finance")
    grant.role = Role.OWNER
    grant.save()
    dan = comes(uni, DAN, "vision-finance")
    team.remove_member(member=member(house.ann.email))
    comes(uni)
    assert roles() == {"vision-lab": "owner"}
    team.add_member(tenant=house.vision, user=house.ben, role=Role.OWNER)
    comes(uni)
    assert roles(dan.email) == {"vision-lab": "member"}


def test_what_a_provider_says_is_read_strictly(uni: IdentityProvider) -> None:
    token = {"sub": "s1", "email": "Dan@Vision.Example", "email_verified": True, "org": "org-17"}
    info = {"sub": "s1", "groups": ["a", 7, None, "x" * 256, ""]}
    assert claims_of(uni, {"id_token": token, "userinfo": info}) == Claims(
        "s1", DAN, True, frozenset({"a"}), frozenset({"org-17"})
    )
    uni.groups_claim = "realm_access.roles"
    nested = claims_of(uni, {"id_token": {"sub": "s1", "realm_access": {"roles": "a"}}})
    assert (nested.groups, nested.email, nested.is_verified) == (frozenset({"a"}), "", False)
    for verified in ("yes", 1.5, [True], None, "false", 2):
        assert not claims_of(uni, {"id_token": {**token, "email_verified": verified}}).is_verified
    another = {"sub": "s1", "email": "boss@vision.example"}
    assert not claims_of(uni, {"id_token": token, "userinfo": another}).is_verified
    assert claims_of(uni, {"id_token": token, "userinfo": {"sub": "s1", "email": token["email"]}}).is_verified
    for odd in ({}, {"sub": 7}, {"sub": "x" * 192}, {"sub": ""}):
        with pytest.raises(SignOnError, match="did not work"):
            claims_of(uni, {"id_token": odd})
    with pytest.raises(SignOnError, match="did not work"):
        claims_of(uni, {"id_token": token, "userinfo": {"sub": "s2"}})
    for address in ("no address", ["a@b.example"], "x" * 250 + "@vision.example", "a@b.example\r\nc"):
        assert claims_of(uni, {"id_token": {"sub": "s1", "email": address}}).email == ""


def test_the_sign_in_page_offers_it_and_an_unknown_one_is_404(uni: IdentityProvider) -> None:
    text = Client().get("/accounts/login/?next=/t/vision-lab/").text
    assert "Sign in with University of Vision" in text
    assert 'href="/accounts/oidc/uni/login/?next=%2Ft%2Fvision-lab%2F"' in text
    IdentityProvider.objects.update(enabled=False)
    assert "University of Vision" not in Client().get("/accounts/login/").text
    for path in (
        "/accounts/oidc/uni/login/",
        "/accounts/oidc/uni/login/callback/?code=x",
        "/accounts/oidc/x/login/",
    ):
        assert Client().get(path).status_code == 404
    assert Client().post("/accounts/oidc/uni/login/").status_code == 405


def test_a_worker_does_not_load_the_client_of_providers() -> None:
    """It takes 6 MB, which web processes alone have anyway."""
    script = "import sys, django; django.setup(); print('requests' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_callback_that_nobody_asked_for_signs_nobody_in(uni: IdentityProvider) -> None:
    browser = Client()
    for query in ("?code=x&state=made-up", "?state=", "", "?error=access_denied&state=x"):
        answer = browser.get("/accounts/oidc/uni/login/callback/" + query, follow=True)
        assert "did not work. Begin again here." in answer.text
        assert "_auth_user_id" not in browser.session


def test_a_secret_rests_encrypted_and_goes_to_its_own_address_alone(
    uni: IdentityProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uni.client_secret.reveal() == SECRET
    assert SECRET not in str(IdentityProvider.objects.values()) + str([*AuditEntry.objects.values()])
    capsys.readouterr()
    applies(tmp_path)
    assert "identity provider" not in capsys.readouterr().out  # applied again, nothing changes
    comes(uni)
    elsewhere = FILE.replace("login.vision", "login.other")
    without = elsewhere.replace('client_secret = "env:OIDC_SECRET"\n', "")
    with pytest.raises(
        RefusedError, match=r"given for https://login.vision.example: give client_secret again"
    ):
        applies(tmp_path, without)
    assert SocialAccount.objects.count() == 1
    assert applies(tmp_path, elsewhere).url == "https://login.other.example"
    assert not SocialAccount.objects.exists()  # whoever is "dan" there is somebody else


def test_a_file_changes_grants_and_takes_them_away(
    uni: IdentityProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = IdentityGrant.objects.get(domain="vision.example").pk
    less = FILE[: FILE.rindex("[[identity_provider.grant]]")].replace('"billing"', '"viewer"')
    applies(tmp_path, less)
    assert "viewer of vision-lab for group vision-finance" in capsys.readouterr().out
    assert [*IdentityGrant.objects.order_by("pk").values_list("role", flat=True)] == ["member", "viewer"]
    assert IdentityGrant.objects.filter(pk=kept).exists()
    applies(tmp_path, '[[identity_provider]]\nname = "uni"\nenabled = false\n')
    assert IdentityGrant.objects.count() == 2
    applies(tmp_path, '[[identity_provider]]\nname = "uni"\ngrant = []\n')
    assert not IdentityGrant.objects.exists()


@pytest.mark.parametrize(
    ("original", "instead", "sentence"),
    [
        ("https://login.vision.example", "http://login.vision.example", "it begins with https://"),
        ("https://login.vision.example", "https://a:b@login.vision.example", "write the issuer alone"),
        ("https://login.vision.example", "https://x.example/?a=b", "write the issuer alone"),
        ("https://login.vision.example", "nonsense", "it begins with https://"),
        ('["vision.example", "vision.edu"]', "[]", "domains is missing"),
        ('["vision.example", "vision.edu"]', '["Vision Example"]', "which is no domain in lower case"),
        ('["vision.example", "vision.edu"]', '["vision.edu"]', "domains does not have 'vision.example'"),
        ('tenant_claim = "org"\n', "", "tenant_claim is missing, but a grant asks for a claim"),
        ('domain = "vision.example"\n', "", "say who gets the role"),
        ('tenant = "speech-lab"', 'tenant = "nowhere"', "which neither the file nor the database has"),
        ('"env:OIDC_SECRET"', '"plain"', "stands in the file itself"),
        ('role = "viewer"', 'role = "admin"', "role"),
        ('title = "University of Vision"\n', "", "title is missing"),
        ('group = "vision-finance"', 'domain = "vision.example"', "stands in the file twice"),
    ],
)
def test_a_mistake_in_the_file_is_told_and_nothing_is_kept(
    house: House, tmp_path: Path, original: str, instead: str, sentence: str
) -> None:
    assert original in FILE
    with pytest.raises(RefusedError, match=sentence):
        applies(tmp_path, FILE.replace(original, instead))
    assert not IdentityProvider.objects.exists()


def test_whoever_acts_for_a_tenant_writes_no_grant(house: House, uni: IdentityProvider) -> None:
    from django.db import ProgrammingError, transaction

    from portal.core.tenants.scope import acting_scope

    with acting_scope(house.speech):
        assert [grant.role for grant in IdentityGrant.objects.all()] == ["viewer"]
        with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            IdentityGrant.objects.update(role="owner")
        with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            IdentityProvider.objects.count()
    assert signed_in(house.op).get("/admin/socialaccount/socialaccount/").status_code == 200
