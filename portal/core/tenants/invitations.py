"""Inviting people into a tenant by e-mail: a link that expires, works once, and proves the address."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from allauth.account.models import EmailAddress
from django.db import transaction
from django.db.models import QuerySet

from portal.core.tenants import account_mails, invitation_links, team
from portal.core.tenants.models import AccountMail, Invitation, Membership, Role, Tenant, User
from portal.core.tenants.team import TeamError

VALID_FOR = timedelta(days=7)
MOST = 100  # open invitations of one tenant
MAILS_AN_HOUR = 30  # of one tenant
MAILS_A_DAY = 5  # of one tenant to one address


@dataclass(frozen=True, slots=True)
class Accepted:
    """The tenant that the person is in now, and with which role."""

    tenant: Tenant
    user: User
    role: Role


def open_invitations(tenant: Tenant) -> QuerySet[Invitation]:
    """Those that nobody has accepted or revoked, by address; expired ones too, which can be sent again."""
    rows = Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)
    return rows.order_by("email")


@transaction.atomic
def invite(
    *, tenant: Tenant, email: str, role: Role, by: str, moment: datetime, shows_link: bool = False
) -> Invitation:
    """Ask somebody in; the mail goes out after the commit. Asked again, the link is a new one and the role as said now.

    `by` is the address of whoever invites. Raises TeamError for what is no address, for somebody who is a member,
    beyond the limits, and where no mail can be sent, unless the caller `shows_link` to an operator: the link proves
    the address of whoever has it. Whether the address has an account here makes no difference, and nobody is told; an
    operator is told where the link would help nobody, since the account has rights and no password.
    """
    address = team.plain_address(email)
    _need_mail(shows_link, address)
    team.lock(tenant)
    if Membership.objects.filter(tenant=tenant, user__email=address).exists():
        raise TeamError("already-member", email=address, tenant=tenant.name)
    row = open_invitations(tenant).filter(email=address).first()
    if row is not None:
        return _renew(row, role, by, moment)
    if open_invitations(tenant).count() >= MOST:
        raise TeamError("too-many-invitations", most=MOST)
    row = Invitation.objects.create(
        tenant=tenant,
        email=address,
        role=role,
        inviter=by,
        created_at=moment,
        expires_at=moment + VALID_FOR,
    )
    _mail(row, moment)
    return row


@transaction.atomic
def resend(*, invitation: Invitation, by: str, moment: datetime, shows_link: bool = False) -> Invitation:
    """Mail a new link, which is valid from now on; the one before is not any more. Raises TeamError as `invite`."""
    _need_mail(shows_link, invitation.email)
    team.lock(invitation.tenant)
    row = open_invitations(invitation.tenant).filter(pk=invitation.pk).first()
    if row is None:
        raise TeamError("invitation-ended")
    return _renew(row, Role(row.role), by, moment)


@transaction.atomic
def revoke(*, invitation: Invitation, moment: datetime) -> None:
    """Have its link accept nothing. A second call changes nothing; TeamError where it was accepted meanwhile."""
    row = Invitation.objects.select_for_update().get(pk=invitation.pk)
    if row.accepted_at is not None:
        raise TeamError("invitation-ended")
    if row.revoked_at is None:
        row.revoked_at = moment
        row.save(update_fields=["revoked_at"])
        row.mails.filter(sent_at=None).update(due_at=None)


def of_token(token: str, *, moment: datetime) -> Invitation | None:
    """The invitation that the link accepts at this moment; None for every other. One query."""
    link = invitation_links.read(token)
    if link is None:
        return None
    number, generation = link
    row = Invitation.objects.select_related("tenant").filter(pk=number, generation=generation).first()
    return row if row is not None and is_valid(row, moment) else None


def is_valid(invitation: Invitation, moment: datetime) -> bool:
    return invitation.accepted_at is None and invitation.revoked_at is None and moment < invitation.expires_at


def account_of(invitation: Invitation) -> User | None:
    """The account that has the address already."""
    return User.objects.filter(email=invitation.email).first()


@transaction.atomic
def accept(*, token: str, user: User | None, password: str = "", moment: datetime) -> Accepted:
    """Let the invited person in; the address is then proved.

    `user` is who is signed in. Without, the account is made with this password, or gets it where it may do nothing
    and nobody has used it yet. Single use: again, TeamError, as where the invitation has ended or was replaced, the
    account has another address, is closed, or is somebody's who has to sign in. Whoever is a member meanwhile keeps
    their role.
    """
    row = of_token(token, moment=moment)
    if row is None:
        raise TeamError("invitation-ended")
    team.lock(row.tenant)
    Invitation.objects.select_for_update().filter(pk=row.pk).first()
    row = of_token(token, moment=moment)  # as it is behind the locks: it may have been replaced or revoked
    if row is None:
        raise TeamError("invitation-ended")
    person = user or _new_account(row, password)
    if person.email != row.email:
        raise TeamError("invitation-of-another", email=row.email, user=person.email)
    if not person.is_active:
        raise TeamError("account-inactive", email=person.email)
    _prove_address(person)
    row.accepted_at = moment
    row.save(update_fields=["accepted_at"])
    member = Membership.objects.filter(tenant=row.tenant, user=person).first()
    if member is None:
        member = team.let_in(tenant=row.tenant, user=person, role=Role(row.role))
    team.tell_owners(tenant=row.tenant, email=row.email, role=row.role, moment=moment)
    return Accepted(row.tenant, person, Role(member.role))


def needs_password(account: User | None) -> bool:
    """Whether whoever accepts chooses a password: there is no account, or one that is nobody's and may do nothing."""
    return account is None or (_is_unused(account) and not _has_rights(account))


def _is_unused(account: User) -> bool:
    """A person who signed up with an address and never proved it has no claim to it."""
    return account.last_login is None and (not account.has_usable_password() or team.is_unproved(account))


def _has_rights(account: User) -> bool:
    """Then a link of an invitation never sets its password: whoever sees the link would have all of these."""
    return bool(account.operator_role) or account.memberships.exists()


def _new_account(row: Invitation, password: str) -> User:
    account = User.objects.select_for_update().filter(email=row.email).first()
    if not needs_password(account):
        raise TeamError("sign-in-first", email=row.email)
    if account is None:
        return User.objects.create_user(row.email, password)
    account.set_password(password)
    account.save(update_fields=["password"])
    return account


def _prove_address(person: User) -> None:
    address, _ = EmailAddress.objects.get_or_create(user=person, email=person.email)
    address.verified = True
    address.save()
    address.set_as_primary()


def _need_mail(shows_link: bool, email: str) -> None:
    if account_mails.can_send():
        return
    if not shows_link:
        raise TeamError("no-mail")
    account = User.objects.filter(email=email).first()
    if account is not None and _is_unused(account) and _has_rights(account):
        raise TeamError("account-without-password", email=email)


def _renew(row: Invitation, role: Role, by: str, moment: datetime) -> Invitation:
    row.generation += 1
    row.role, row.inviter, row.expires_at = role, by, moment + VALID_FOR
    row.save(update_fields=["generation", "role", "inviter", "expires_at"])
    row.mails.filter(sent_at=None).update(due_at=None)
    _mail(row, moment)
    return row


def _mail(row: Invitation, moment: datetime) -> None:
    """Raises TeamError where too many were mailed."""
    mails = AccountMail.objects.filter(tenant=row.tenant, kind=AccountMail.Kind.INVITATION)
    of_tenant = mails.filter(created_at__gt=moment - timedelta(hours=1)).count()
    to_address = mails.filter(created_at__gt=moment - timedelta(days=1), to=row.email).count()
    if of_tenant >= MAILS_AN_HOUR or to_address >= MAILS_A_DAY:
        raise TeamError("too-many-mails", most=MAILS_AN_HOUR, each=MAILS_A_DAY)
    account_mails.write(
        kind=AccountMail.Kind.INVITATION,
        to=row.email,
        tenant=row.tenant,
        invitation=row,
        moment=moment,
        values={"role": row.role, "email": row.inviter},
    )
