"""Ann invites, changes and removes people herself; Op does so for any tenant. Everything is in the history."""

from __future__ import annotations

import re
import smtplib
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models import Model
from django.test import Client

from portal.core.audit.models import AuditEntry
from portal.core.tenants import account_mails, invitation_links, invitations, team
from portal.core.tenants.access import ALLOWED, LABELS, Action
from portal.core.tenants.models import AccountMail, Invitation, Membership, OperatorRole, Role, Tenant, User
from portal.core.tenants.tasks import forget_account_mails, send_account_mails
from portal.core.tenants.team import TeamError
from tests import builders, sharing
from tests.api.door import Door, a_key, door
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

TEAM, CHANGE, LEAVE = "/t/vision-lab/team/", "/t/vision-lab/team/change/", "/t/vision-lab/team/leave/"
OPERATORS_TEAM = "/operator/tenants/vision-lab/team/"
DAN = "dan@vision.example"
SECRET = "a much longer secret"


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, "https://tab.example"


def does(person: User, act: str, path: str = CHANGE, **fields: object) -> str:
    """The page that follows the button."""
    response = signed_in(person).post(path, {"act": act, **fields}, follow=True)
    assert response.status_code == 200, response.status_code
    return response.content.decode()


def link() -> str:
    """Of the newest mail that is sent now."""
    send_account_mails()
    (path,) = re.findall(r"https://tab\.example(/invitations/\S+)", str(mail.outbox[-1].body))
    return str(path)


def invited(house: House, email: str = DAN, role: str = "billing") -> str:
    text = does(house.ann, "invite", email=email, role=role)
    assert f"{email.lower()} is invited by e-mail." in text
    return link()


def member(email: str) -> Membership:
    return Membership.objects.get(tenant__slug="vision-lab", user__email=email)


def history(model: type[Model]) -> list[tuple[str, str]]:
    return list(AuditEntry.objects.of_table(model).values_list("operation", "who"))


def test_dan_is_invited_makes_an_account_and_pays_from_then_on(house: House) -> None:
    path = invited(house)
    (message,) = mail.outbox
    assert message.to == [DAN]
    assert message.subject == "ann@vision.example invites you to Vision Lab on ClusterTab"
    assert "Billing: invoices and payment" in message.body
    assert DAN in page(house.ann, TEAM)
    dan = Client()
    assert "Choose a password for your new account." in dan.get(path).text
    assert "two different passwords" in dan.post(path, {"password1": SECRET, "password2": "other"}).text
    assert "too common" in dan.post(path, {"password1": "password123", "password2": "password123"}).text
    assert not User.objects.filter(email=DAN).exists()
    welcome = dan.post(path, {"password1": SECRET, "password2": SECRET}, follow=True)
    assert "Welcome! You are a member of Vision Lab now." in welcome.text
    assert welcome.redirect_chain[-1][0] == "/t/vision-lab/"
    assert dan.get("/t/vision-lab/invoices/").status_code == 200
    assert EmailAddress.objects.get(user__email=DAN).verified
    assert history(Membership)[-1] == ("insert", DAN)
    assert [operation for operation, _ in history(Invitation)] == ["insert", "update"]
    send_account_mails()
    assert [(m.to, m.subject) for m in mail.outbox[1:]] == [([house.ann.email], f"{DAN} joined Vision Lab")]


def test_a_link_works_once(house: House) -> None:
    path = invited(house)
    dan = Client()
    dan.post(path, {"password1": SECRET, "password2": SECRET})
    again = Client().get(path)
    assert again.status_code == 404
    assert "This invitation is not valid" in again.text
    assert Client().post(path, {"password1": SECRET, "password2": SECRET}).status_code == 404


def test_no_link_is_valid_that_we_did_not_sign_or_that_was_replaced_revoked_or_has_expired(
    house: House,
) -> None:
    first = invited(house)
    assert Client().get(first[:-3] + ("AA/" if first[-3:] != "AA/" else "BB/")).status_code == 404
    assert Client().get("/invitations/1.1:x/").status_code == 404
    row = Invitation.objects.get()
    does(house.ann, "resend", invitation=row.pk)
    second = link()
    assert (Client().get(first).status_code, Client().get(second).status_code) == (404, 200)
    later = datetime.now(UTC) + invitations.VALID_FOR
    token = second.split("/")[2]
    assert invitations.of_token(token, moment=later - timedelta(seconds=60)) is not None
    assert invitations.of_token(token, moment=later) is None
    assert "The invitation of dan@vision.example is revoked." in does(house.ann, "revoke", invitation=row.pk)
    assert Client().get(second).status_code == 404
    assert DAN not in page(house.ann, TEAM)


def test_no_row_of_the_database_holds_a_link(house: House) -> None:
    path = invited(house)
    token = path.split("/")[2]
    stored = str([list(model.objects.values()) for model in (Invitation, AccountMail)])
    assert token.split(":")[1] not in stored


def test_whoever_has_an_account_joins_with_it_and_with_no_other(house: House) -> None:
    path = invited(house, "EVE@Speech.example", "viewer")
    stranger = Client().get(path)
    assert "eve@speech.example has an account here: sign in to join." in stranger.text
    refused = Client().post(path, {"password1": SECRET, "password2": SECRET}, follow=True)
    assert "sign in, then open the link again" in refused.text
    assert not Membership.objects.filter(user=house.eve, tenant=house.vision).exists()
    as_ben = signed_in(house.ben)
    assert "You are signed in as ben@vision.example." in as_ben.get(path).text
    assert "This invitation is for eve@speech.example" in as_ben.post(path, follow=True).text
    joined = signed_in(house.eve).post(path, follow=True)
    assert joined.redirect_chain[-1][0] == "/t/vision-lab/"
    assert member("eve@speech.example").role == Role.VIEWER
    house.eve.refresh_from_db()
    assert house.eve.check_password(builders.PASSWORD)


def test_an_account_that_an_operator_made_and_nobody_used_gets_its_password_by_the_link(house: House) -> None:
    User.objects.create_user(DAN)
    Client().post(invited(house), {"password1": SECRET, "password2": SECRET})
    assert User.objects.get(email=DAN).check_password(SECRET)
    assert member(DAN).role == Role.BILLING


def test_a_closed_account_does_not_join(house: House) -> None:
    User.objects.create_user(DAN, is_active=False)
    answer = Client().post(invited(house), {"password1": SECRET, "password2": SECRET}, follow=True)
    assert "is closed" in answer.text
    assert not Membership.objects.filter(user__email=DAN).exists()


def test_who_is_a_member_already_is_not_invited_whatever_the_case_of_the_address(house: House) -> None:
    text = does(house.ann, "invite", email="BEN@vision.example", role="owner")
    assert "ben@vision.example is a member of Vision Lab already" in text
    assert member("ben@vision.example").role == Role.MEMBER
    assert not Invitation.objects.exists()


def test_who_was_let_in_meanwhile_keeps_the_role_and_the_invitation_is_settled(house: House) -> None:
    path = invited(house, role="owner")
    call_command("set_member", "vision-lab", DAN, "--role", "member")
    assert Client().get(path).status_code == 404
    assert member(DAN).role == Role.MEMBER


@pytest.mark.parametrize("email", ["", "dan", "dan@", "a b@c.example", "x" * 255 + "@y.example"])
def test_what_is_no_address_is_refused_with_what_to_write(house: House, email: str) -> None:
    assert "write one such as ann@example.org" in does(house.ann, "invite", email=email, role="member")
    assert "There is no role king" in does(house.ann, "invite", email=DAN, role="king")
    assert not Invitation.objects.exists()


def test_mails_to_one_address_and_of_one_tenant_are_limited(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(invitations.MAILS_A_DAY):
        does(house.ann, "invite", email=DAN, role="member")
    assert "Too many invitations were mailed" in does(house.ann, "invite", email=DAN, role="member")
    monkeypatch.setattr(invitations, "MAILS_AN_HOUR", invitations.MAILS_A_DAY)
    assert "Too many" in does(house.ann, "invite", email="fay@vision.example", role="member")
    monkeypatch.undo()
    monkeypatch.setattr(invitations, "MOST", 1)
    assert "There are 1 open invitations" in does(house.ann, "invite", email="gus@v.example", role="member")


def test_without_a_mail_server_owners_cannot_invite_and_operators_see_the_link(
    house: House, settings: Any
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = False
    assert "E-mail is not configured" in does(house.ann, "invite", email=DAN, role="member")
    assert not Invitation.objects.exists()
    text = does(house.op, "invite", OPERATORS_TEAM, email=DAN, role="owner")
    found = re.search(r"http://testserver(/invitations/[^/]+/)", text)
    assert found is not None
    assert Client().get(found[1]).status_code == 200
    with pytest.raises(TeamError, match="E-mail is not configured"):
        invitations.invite(tenant=house.vision, email=DAN, role=Role.MEMBER, by="x", moment=datetime.now(UTC))


def test_ann_changes_roles_and_removes_and_the_person_is_mailed(house: House) -> None:
    ben = member("ben@vision.example")
    text = does(house.ann, "role", member=ben.pk, role="viewer")
    assert "ben@vision.example has the role viewer now." in text
    assert signed_in(house.ben).get("/t/vision-lab/invoices/").status_code == 200
    entry = AuditEntry.objects.of(ben).last()
    assert entry is not None
    assert (entry.before, entry.after, entry.who) == (
        {"role": "member"},
        {"role": "viewer"},
        house.ann.email,
    )
    assert entry.tenant_id == house.vision.pk
    key = Door(a_key(house.ben, house.vision, "usage:read").secret)
    assert key.get("/me").status == 200
    assert "Removed from Vision Lab: ben@vision.example." in does(house.ann, "remove", member=ben.pk)
    assert signed_in(house.ben).get(TEAM).status_code == 404
    assert key.get("/me").status == 401
    send_account_mails()
    assert [m.subject for m in mail.outbox] == [
        "Your role in Vision Lab has changed",
        "You were removed from Vision Lab",
    ]
    assert "Reload the page" in does(house.ann, "remove", member=ben.pk)


def test_the_last_owner_stays(house: House) -> None:
    ann = member("ann@vision.example")
    assert "You are the last owner of Vision Lab" in signed_in(house.ann).post(LEAVE, follow=True).text
    assert "is the last owner" in does(house.ann, "role", member=ann.pk, role="member")
    assert "is the last owner" in does(house.op, "remove", OPERATORS_TEAM, member=ann.pk)
    assert door(house.op, None).send("DELETE", f"/tenants/vision-lab/members/{ann.user.email}").status == 409
    with pytest.raises(CommandError, match="is the last owner"):
        call_command("set_member", "vision-lab", ann.user.email, "--remove")
    assert member("ann@vision.example").role == Role.OWNER


def test_ann_hands_the_tenant_over_and_leaves(house: House) -> None:
    ben = member("ben@vision.example")
    assert "ben@vision.example is the owner now" in does(house.ann, "transfer", member=ben.pk)
    roles = dict(Membership.objects.filter(tenant=house.vision).values_list("user__email", "role"))
    assert roles == {house.ann.email: "billing", house.carla.email: "billing", house.ben.email: "owner"}
    assert signed_in(house.ann).post(CHANGE, {"act": "remove", "member": ben.pk}).status_code == 404
    Tenant.objects.filter(pk=house.vision.pk).update(name="Vision Lab, Inc.")
    left = signed_in(house.ann).post(LEAVE, follow=True)
    assert "Your membership of Vision Lab, Inc. has ended." in left.text
    assert signed_in(house.ann).get(TEAM).status_code == 404


def test_only_owners_change_the_team_and_all_members_see_it(house: House) -> None:
    ben = member("ben@vision.example")
    for person in (house.ben, house.carla):
        assert "carla@vision.example" in page(person, TEAM)
        assert "Invite by e-mail" not in page(person, TEAM)
        assert signed_in(person).post(CHANGE, {"act": "remove", "member": ben.pk}).status_code == 404
    assert signed_in(house.eve).get(TEAM).status_code == 404


def test_nobody_changes_another_teams_rows_by_their_numbers(house: House) -> None:
    eve = Membership.objects.get(user=house.eve)
    does(house.eve, "invite", "/t/speech-lab/team/change/", email=DAN, role="member")
    theirs = Invitation.objects.get()
    assert "not a member" in does(house.ann, "remove", member=eve.pk)
    assert "not a member" in does(house.ann, "role", member=eve.pk, role="viewer")
    assert "not valid" in does(house.ann, "revoke", invitation=theirs.pk)
    assert "not valid" in does(house.ann, "resend", invitation=theirs.pk)
    theirs.refresh_from_db()
    eve.refresh_from_db()
    assert (theirs.revoked_at, theirs.generation, eve.role) == (None, 1, Role.OWNER)


def test_the_page_shows_the_one_table_of_roles(house: House) -> None:
    text = page(house.ann, TEAM)
    assert set(LABELS) == set(Action)
    assert all(label in text for label in LABELS.values())
    rows = re.findall(r'<th scope="row"[^>]*>([^<]+)</th>(.*?)</tr>', text, re.DOTALL)
    shown = {label: re.findall(r">(?:<[^>]+>)?(yes|no)<", row) for label, row in rows}
    assert shown == {
        label: ["yes" if action in ALLOWED[role] else "no" for role in Role]
        for action, label in LABELS.items()
    }


def test_each_role_includes_those_below_it() -> None:
    owner, billing, viewer, reader = (ALLOWED[role] for role in Role)
    assert owner > billing > viewer > reader


def test_op_manages_the_team_of_any_tenant_by_page_command_and_api(house: House) -> None:
    assert "Manage as operator" in page(house.op, TEAM)
    does(house.op, "invite", OPERATORS_TEAM, email=DAN, role="owner")
    call_command("invite_member", "vision-lab", "fay@vision.example", "--role", "viewer")
    op = door(house.op, None)
    op.writes("/tenants/vision-lab/invitations", {"email": "gus@vision.example", "role": "member"})
    rows = op.reads("/tenants/vision-lab/invitations")["data"]
    assert [(row["email"], row["role"]) for row in rows] == [
        (DAN, "owner"),
        ("fay@vision.example", "viewer"),
        ("gus@vision.example", "member"),
    ]
    path = f"/tenants/vision-lab/invitations/{rows[2]['id']}"
    assert op.get(path).body["email"] == "gus@vision.example"
    assert [op.send("DELETE", path).status for _ in range(2)] == [204, 404]
    refused = op.post("/tenants/vision-lab/invitations", {"email": "ben@vision.example", "role": "owner"})
    assert refused.problem == (409, "refused")
    support = User.objects.create_user("sue@cluster.example", operator_role=OperatorRole.SUPPORT)
    assert "Your role does not allow this." in does(
        support, "invite", OPERATORS_TEAM, email=DAN, role="owner"
    )
    assert "Invite by e-mail" not in page(support, OPERATORS_TEAM)


def test_a_mail_server_that_refuses_is_asked_again_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    does(house.ann, "invite", email=DAN, role="member")

    def refuse(self: EmailBackend, messages: object) -> int:
        raise smtplib.SMTPResponseException(451, b"later")

    moment = datetime.now(UTC)
    with monkeypatch.context() as patch:
        patch.setattr(EmailBackend, "send_messages", refuse)
        assert account_mails.send_due(moment=moment) == 0
    assert account_mails.send_due(moment=moment) == 0  # its time has not come
    assert account_mails.send_due(moment=moment + account_mails.LEASE) == 1
    assert account_mails.send_due(moment=moment + 9 * account_mails.LEASE) == 0
    assert len(mail.outbox) == 1
    AccountMail.objects.update(created_at=moment - timedelta(days=31))
    assert forget_account_mails() == 1


def test_a_file_that_swaps_the_owner_is_applied(house: House) -> None:
    from portal.config_file.apply import apply
    from portal.config_file.schema import parse

    text = """
[[tenant]]
slug = "vision-lab"
[[tenant.member]]
email = "ann@vision.example"
role = "viewer"
[[tenant.member]]
email = "dan@vision.example"
role = "owner"
"""
    apply(file=parse(text))
    assert (member("ann@vision.example").role, member(DAN).role) == (Role.VIEWER, Role.OWNER)


def test_of_two_owners_one_can_leave(house: House) -> None:
    team.set_role(member=member("ben@vision.example"), role=Role.OWNER)
    team.leave(tenant=house.vision, user=house.ann)
    with pytest.raises(TeamError, match="last owner"):
        team.leave(tenant=house.vision, user=house.ben)


def test_links_are_the_portals(house: House) -> None:
    does(house.ann, "invite", email=DAN, role="member")
    row = Invitation.objects.get()
    assert invitation_links.url_of(row) == f"https://tab.example{invitation_links.path_of(row)}"
