"""The members of a tenant and their roles. A tenant that has an owner always keeps one.

Who acts is named by the edge (`portal.core.audit.acting_as`), and the history of changes has it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from allauth.account.models import EmailAddress
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from portal.core.tenants import account_mails
from portal.core.tenants.models import AccountMail, Exclusion, Invitation, Membership, Role, Tenant, User
from portal.core.tenants.team_messages import SENTENCES
from portal.errors import CodedError
from portal.excerpt import excerpt

UNPROVED_FOR = timedelta(days=7)
MOST_USERS = 20  # scheduler user names of one member
_COLUMNS = ("role", "scheduler_users", "through", "tenant__name", "tenant__slug", "user__email")
"""Whoever acts for a tenant may not read all of a person's."""


class TeamError(CodedError):
    """The team cannot be changed so; the message says why and what to do."""

    sentences = SENTENCES


def members(tenant: Tenant) -> list[Membership]:
    """With their people, owners first, then by address. One query."""
    order = {role: place for place, role in enumerate(Role.values)}
    rows = Membership.objects.filter(tenant=tenant).select_related("user")
    rows = rows.only(
        *("role", "scheduler_users", "through", "tenant_id"),
        *("user__email", "user__first_name", "user__last_name"),
    )
    return sorted(rows, key=lambda row: (order[row.role], row.user.email))


@transaction.atomic
def add_member(*, tenant: Tenant, user: User, role: Role) -> Membership:
    """Let a person in, or change their role. Asked again, nothing changes. Raises TeamError for the last owner."""
    lock(tenant)
    member = Membership.objects.filter(tenant=tenant, user_id=user.pk).first()
    if member is not None:
        return set_role(member=member, role=role)
    return let_in(tenant=tenant, user=user, role=role)


def let_in(
    *, tenant: Tenant, user: User, role: Role, through: str = "", moment: datetime | None = None
) -> Membership:
    """Make somebody a member who is none, under the lock of the team. `through` names the provider whose grants did.

    Whoever comes through one, the owners are mailed of.
    """
    forget_unproved_password(user)
    member = Membership.objects.create(tenant=tenant, user_id=user.pk, role=role, through=through)
    _close_invitations(tenant, user.email)
    Exclusion.objects.filter(tenant=tenant, email=user.email).delete()
    if through:
        tell_owners(tenant=tenant, email=user.email, role=role, moment=moment)
    return member


def is_unproved(user: User) -> bool:
    """Whether somebody signed up with the address and has not opened the link that proves it. One query."""
    return bool(EmailAddress.objects.filter(user_id=user.pk, verified=False, email=user.email).exists())


def forget_unproved_password(user: User) -> None:
    """Roles are given to addresses: who signed up with somebody else's must not have what that person gets."""
    if user.last_login is None and user.has_usable_password() and is_unproved(user):
        user.set_unusable_password()
        user.save(update_fields=["password"])


def forget_unproved(*, moment: datetime) -> int:
    """Delete accounts of people who signed up a week ago, never proved the address and may do nothing; how many."""
    rows = User.objects.filter(
        last_login=None, operator_role="", memberships=None, date_joined__lt=moment - UNPROVED_FOR
    )
    unproved = EmailAddress.objects.filter(user=OuterRef("pk"), verified=False)
    proved = EmailAddress.objects.filter(user=OuterRef("pk"), verified=True)
    gone = list(rows.filter(Exists(unproved)).exclude(Exists(proved)).values_list("pk", flat=True))
    User.objects.filter(pk__in=gone).delete()
    return len(gone)


def tell_owners(*, tenant: Tenant, email: str, role: str, moment: datetime | None) -> None:
    """Mail them that somebody has joined."""
    owners = Membership.objects.filter(tenant=tenant, role=Role.OWNER).exclude(user__email=email)
    for address in owners.order_by("user__email").values_list("user__email", flat=True):
        account_mails.write(
            kind=AccountMail.Kind.JOINED,
            to=address,
            tenant=tenant,
            moment=moment,
            values={"role": role, "email": email},
        )


@transaction.atomic
def set_role(*, member: Membership, role: Role, through: str = "") -> Membership:
    """Another role, which the person is mailed. Asked again, nothing changes. Raises TeamError for the last owner.

    Whoever is no owner any more has no open invitations either. A role that is given by hand is kept so: the provider
    that `through` named before changes it no more.
    """
    row = _locked(member)
    if row.role == role:
        return row
    if row.role == Role.OWNER:
        _refuse_last_owner(row, "last-owner-role")
        revoke_invitations_by(row.user.email, tenant=row.tenant)
    row.role, row.through = role, through
    row.save(update_fields=["role", "through"])
    _mail(row, AccountMail.Kind.ROLE)
    return row


@transaction.atomic
def set_scheduler_users(*, member: Membership, names: Collection[str]) -> Membership:
    """What the person is called on the clusters: their jobs are *mine* on the page of jobs.

    It gives no right but to see these jobs, where members see their own alone.

    Asked again, nothing changes. Raises TeamError for too many names, and for one that is too long.
    """
    users = sorted({name.strip() for name in names} - {""})
    if len(users) > MOST_USERS or any(len(name) > 100 for name in users):
        raise TeamError("too-many-users", most=MOST_USERS)
    row = _locked(member)
    if row.scheduler_users != users:
        row.scheduler_users = users
        row.save(update_fields=["scheduler_users"])
    return row


@transaction.atomic
def remove_member(*, member: Membership, excluded: bool = True) -> None:
    """Take somebody out, whose own API keys of the tenant are refused from then on; service keys stay.

    If `excluded`, no identity provider brings them back. Again, TeamError: nobody is there. Raises TeamError for the
    last owner.
    """
    row = _locked(member)
    if row.role == Role.OWNER:
        _refuse_last_owner(row, "last-owner-removed")
        revoke_invitations_by(row.user.email, tenant=row.tenant)
    _mail(row, AccountMail.Kind.REMOVED)
    if excluded:
        exclude(row)
    row.delete()


@transaction.atomic
def leave(*, tenant: Tenant, user: User) -> None:
    """The person goes. Raises TeamError for the last owner, and for somebody who is no member."""
    lock(tenant)
    rows = Membership.objects.select_related("tenant", "user")
    row = rows.only(*_COLUMNS).filter(tenant=tenant, user_id=user.pk).first()
    if row is None:
        raise TeamError("no-member", tenant=tenant.name)
    if row.role == Role.OWNER:
        _refuse_last_owner(row, "last-owner-leaves")
        revoke_invitations_by(row.user.email, tenant=tenant)
    exclude(row)
    row.delete()


@transaction.atomic
def transfer_ownership(*, tenant: Tenant, user: User, to: Membership) -> None:
    """Make a member an owner in place of the person, who then has the role billing.

    Raises TeamError where the person is no owner, and where both are the same.
    """
    lock(tenant)
    own = Membership.objects.filter(tenant=tenant, user_id=user.pk, role=Role.OWNER).first()
    if own is None:
        raise TeamError("no-owner")
    if own.pk == to.pk:
        raise TeamError("transfer-to-oneself")
    set_role(member=to, role=Role.OWNER)
    set_role(member=own, role=Role.BILLING)


@transaction.atomic
def require_second_factor(*, tenant: Tenant, required: bool) -> None:
    """Have members need a second factor before they see the tenant, or not. Asked again, nothing changes."""
    row = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if row.second_factor != required:
        row.second_factor = required
        row.save(update_fields=["second_factor"])


@transaction.atomic
def show_members_own(*, tenant: Tenant, own: bool) -> None:
    """Have members see their own jobs and the totals of their projects alone, or everything. Again, nothing changes."""
    row = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if row.members_see_own != own:
        row.members_see_own = own
        row.save(update_fields=["members_see_own"])


def lock(tenant: Tenant) -> None:
    """Changes of one team wait for each other: of two owners who leave at once, one stays."""
    Tenant.objects.select_for_update(no_key=True).only("pk").get(pk=tenant.pk)


def _locked(member: Membership) -> Membership:
    """As it is by now. Raises TeamError where it is gone."""
    lock(member.tenant)
    rows = Membership.objects.select_related("tenant", "user")
    row = rows.only(*_COLUMNS).filter(pk=member.pk).first()
    if row is None:
        raise TeamError("no-member", tenant=member.tenant.name)
    return row


def exclude(row: Membership) -> None:
    """Have no identity provider bring the person back, whoever let them in: its grants may hold for them, too."""
    Exclusion.objects.get_or_create(tenant_id=row.tenant_id, email=row.user.email)


def _refuse_last_owner(row: Membership, code: str) -> None:
    others = Membership.objects.filter(tenant_id=row.tenant_id, role=Role.OWNER).exclude(pk=row.pk)
    if not others.exists():
        raise TeamError(code, email=row.user.email, tenant=row.tenant.name)


def _mail(row: Membership, kind: AccountMail.Kind) -> None:
    account_mails.write(kind=kind, to=row.user.email, tenant=row.tenant, values={"role": row.role})


def _close_invitations(tenant: Tenant, email: str) -> None:
    """What somebody was invited to before they were let in another way is settled."""
    open_ones = tenant.invitations.filter(email=email.lower(), accepted_at=None, revoked_at=None)
    open_ones.update(accepted_at=Now())


def revoke_invitations_by(email: str, *, tenant: Tenant | None = None) -> None:
    """End the open invitations that somebody sent who may invite no more: nobody comes back by an own one.

    In this tenant; without one, in all of which the person is no owner.
    """
    rows = Invitation.objects.filter(inviter=email, accepted_at=None, revoked_at=None)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    else:
        owned = Membership.objects.filter(user__email=email, user__is_active=True, role=Role.OWNER)
        rows = rows.exclude(tenant__in=owned.values("tenant"))
    numbers = list(rows.select_for_update().order_by("pk").values_list("pk", flat=True))
    Invitation.objects.filter(pk__in=numbers).update(revoked_at=Now())
    AccountMail.objects.filter(invitation__in=numbers, sent_at=None).update(due_at=None)


def plain_address(email: str) -> str:
    """As people sign in with it: without blanks around, in lower case. Raises TeamError for what is no address."""
    address = email.strip().lower()
    try:
        validate_email(address)
    except ValidationError:
        raise TeamError("no-address", email=excerpt(email.strip()) or "“”") from None
    if len(address) > 254:
        raise TeamError("no-address", email=excerpt(address))
    return address
