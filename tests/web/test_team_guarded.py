"""Nobody becomes owner or admin by a link that was not theirs, comes back by one, or gives a tenant away unproved."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command
from django.test import Client

from portal.core.audit import acting_as
from portal.core.tenants import invitations, team
from portal.core.tenants.models import Invitation, Membership, OperatorRole, Role, Tenant, User
from portal.core.tenants.operators import set_operator_role
from portal.core.tenants.tasks import send_account_mails
from portal.core.tenants.team import TeamError
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_second_factor import enters, long_ago
from tests.web.test_team import CHANGE, DAN, LEAVE, OPERATORS_TEAM, SECRET, does, invited, link, member

pytestmark = pytest.mark.django_db

BOSS = "boss@ops.example"
PASSWORDS = {"password1": SECRET, "password2": SECRET}


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, "https://tab.example"


@pytest.fixture
def fin(house: House) -> User:
    return User.objects.create_user("fin@ops.example", builders.PASSWORD, operator_role=OperatorRole.FINANCE)


def shown_link(text: str) -> str:
    (path,) = re.findall(r"http://testserver(/invitations/[^\s<&\"]+)", text)
    return str(path)


def test_without_mail_finance_cannot_take_over_an_admin_who_has_no_password_yet(
    house: House, fin: User, settings: Any
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = False
    before = shown_link(does(fin, "invite", OPERATORS_TEAM, email=BOSS, role="member"))
    set_operator_role(email=BOSS, role=OperatorRole.ADMIN)
    again = Invitation.objects.get().pk
    for text in (
        does(fin, "invite", OPERATORS_TEAM, email=BOSS, role="member"),
        does(fin, "resend", OPERATORS_TEAM, invitation=again),
    ):
        assert "run ./run manage changepassword boss@ops.example first" in text
        assert "/invitations/" not in text
    stranger = Client()
    assert "has an account here: sign in" in stranger.get(before).text
    assert "sign in, then open the link again" in stranger.post(before, PASSWORDS, follow=True).text
    assert stranger.get("/operator/people/").status_code == 302
    assert not User.objects.get(email=BOSS).has_usable_password()


def test_an_invitation_sets_no_password_of_a_member_of_another_tenant(house: House, fin: User) -> None:
    gus = User.objects.create_user("gus@speech.example")
    team.add_member(tenant=house.speech, user=gus, role=Role.OWNER)
    path = invited(house, gus.email)
    assert "sign in, then open the link again" in Client().post(path, PASSWORDS, follow=True).text
    gus.set_password(SECRET)  # by the mail that "Forgot your password?" sends
    gus.save()
    assert signed_in(gus).post(path).headers["Location"] == "/t/vision-lab/"


def test_an_account_that_may_nothing_gets_its_password_by_the_invitation(house: House) -> None:
    User.objects.create_user(DAN)
    path = invited(house)
    assert Client().post(path, PASSWORDS).headers["Location"] == "/t/vision-lab/"
    assert User.objects.get(email=DAN).check_password(SECRET)


@pytest.mark.parametrize(
    ("act", "fields"),
    [
        ("role", {"who": "ben@vision.example", "role": "owner"}),
        ("role", {"who": "olga@vision.example", "role": "viewer"}),
        ("remove", {"who": "olga@vision.example"}),
        ("transfer", {"who": "ben@vision.example"}),
        ("invite", {"email": DAN, "role": " owner "}),
        ("resend", {}),
        ("second_factor", {}),
    ],
)
@pytest.mark.parametrize(("who", "path"), [("ann", CHANGE), ("op", OPERATORS_TEAM)])
def test_whoever_makes_or_removes_an_owner_proves_who_they_are(
    house: House, settings: Any, who: str, path: str, act: str, fields: dict[str, Any]
) -> None:
    settings.CLUSTERTAB_REAUTHENTICATION_MINUTES = 30
    builders.a_person("olga@vision.example", house.vision, Role.OWNER)
    row = invitations.invite(
        tenant=house.vision, email="fay@v.example", role=Role.OWNER, by="x", moment=datetime.now(UTC)
    )
    sent: dict[str, Any] = {"act": act, "invitation": row.pk} | fields
    if "who" in fields:
        sent["member"] = member(sent.pop("who")).pk
    roles = list(Membership.objects.order_by("pk").values_list("pk", "role"))
    browser = enters(getattr(house, who))
    long_ago(browser, minutes=31)
    asked = browser.post(path, sent)
    assert asked.headers["Location"].startswith("/accounts/reauthenticate/?next=")
    assert list(Membership.objects.order_by("pk").values_list("pk", "role")) == roles
    assert Invitation.objects.get().generation == 1


def test_what_makes_no_owner_needs_no_proof(house: House, settings: Any) -> None:
    settings.CLUSTERTAB_REAUTHENTICATION_MINUTES = 30
    ann = enters(house.ann)
    long_ago(ann, minutes=31)
    ben = member("ben@vision.example").pk
    acts = [
        {"act": "invite", "email": DAN, "role": "viewer"},
        {"act": "role", "member": ben, "role": "viewer"},
    ]
    for sent in (*acts, {"act": "users", "member": ben, "users": "b"}, {"act": "remove", "member": ben}):
        assert ann.post(CHANGE, sent).headers["Location"] == "/t/vision-lab/team/", sent


def _is_removed(house: House) -> None:
    does(house.ann, "remove", member=member("olga@vision.example").pk)


def _has_another_role(house: House) -> None:
    does(house.ann, "role", member=member("olga@vision.example").pk, role="viewer")


def _leaves(house: House) -> None:
    signed_in(User.objects.get(email="olga@vision.example")).post(LEAVE)


def _transfers(house: House) -> None:
    olga = User.objects.get(email="olga@vision.example")
    does(olga, "transfer", member=member("ben@vision.example").pk)


def _is_removed_by_command(house: House) -> None:
    call_command("set_member", "vision-lab", "olga@vision.example", "--remove")


def _is_removed_in_the_admin(house: House) -> None:
    row = member("olga@vision.example")
    answer = signed_in(house.op).post(f"/admin/tenants/membership/{row.pk}/delete/", {"post": "yes"})
    assert answer.status_code == 302


@pytest.mark.parametrize(
    "goes",
    [_is_removed, _has_another_role, _leaves, _transfers, _is_removed_by_command, _is_removed_in_the_admin],
)
def test_an_owner_who_goes_leaves_no_way_back_open(house: House, goes: Callable[[House], None]) -> None:
    builders.a_person("olga@vision.example", house.vision, Role.OWNER)
    olga = User.objects.get(email="olga@vision.example")
    does(olga, "invite", email="olga@home.example", role="owner")
    back = link()
    does(olga, "invite", email="olga@second.example", role="owner")  # its mail has not left yet
    kept = invited(house)
    mail.outbox.clear()
    goes(house)
    assert Client().get(back).status_code == 404
    assert Client().post(back, PASSWORDS).status_code == 404
    assert Client().get(kept).status_code == 200
    send_account_mails()
    assert not [letter for letter in mail.outbox if "invites you" in letter.subject]
    assert "olga@home.example" not in page(house.op, OPERATORS_TEAM)
    assert not User.objects.filter(email__startswith="olga@home").exists()


def test_an_operator_who_may_invite_no_more_leaves_no_way_back_open(house: House, fin: User) -> None:
    does(fin, "invite", OPERATORS_TEAM, email="fin@home.example", role="owner")
    back = link()
    team.add_member(tenant=house.speech, user=fin, role=Role.OWNER)
    does(fin, "invite", "/t/speech-lab/team/change/", email=DAN, role="member")
    kept = link()
    set_operator_role(email=fin.email, role=OperatorRole.SUPPORT)
    assert (Client().get(back).status_code, Client().get(kept).status_code) == (404, 200)


def test_a_link_that_is_replaced_while_it_is_accepted_accepts_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one may have gone to somebody else's hands for another role."""
    token = invited(house, role="member").split("/")[2]
    lock = team.lock

    def replaced_first(tenant: Tenant) -> None:
        monkeypatch.setattr(team, "lock", lock)
        with acting_as("ann@vision.example"):
            invitations.invite(
                tenant=tenant, email=DAN, role=Role.OWNER, by=house.ann.email, moment=datetime.now(UTC)
            )

    monkeypatch.setattr(team, "lock", replaced_first)
    with pytest.raises(TeamError, match="This invitation is not valid"):
        invitations.accept(token=token, user=None, password=SECRET, moment=datetime.now(UTC))
    assert not User.objects.filter(email=DAN).exists()
