"""Who runs the machines: the people with an operator's role. There is always an admin, once there is one."""

from __future__ import annotations

from django.db import transaction
from django.db.models import QuerySet

from portal.core.tenants import account_mails
from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.models import AccountMail, OperatorRole, User
from portal.core.tenants.team import TeamError, forget_unproved_password, plain_address, revoke_invitations_by


def operators() -> QuerySet[User]:
    """By address."""
    return User.objects.exclude(operator_role="").order_by("email")


@transaction.atomic
def set_operator_role(*, email: str, role: OperatorRole | None) -> User:
    """Give a person an operator's role, or none, which they are mailed. Asked again, nothing changes.

    Without an account the address gets one, whose password is set from the sign-in page. Raises TeamError for what is
    no address, for taking a role from somebody without an account, and for the last active admin.
    """
    address = plain_address(email)
    admins = User.objects.select_for_update().filter(operator_role=OperatorRole.ADMIN, is_active=True)
    others = [admin for admin in admins.order_by("pk") if admin.email != address]
    person = User.objects.select_for_update().filter(email=address).first()
    if person is None and role is None:
        raise TeamError("no-account", email=address)
    if person is not None and person.operator_role == (role or ""):
        return person
    if person is not None and person.operator_role == OperatorRole.ADMIN and not others:
        raise TeamError("last-admin", email=address)
    person = person or User.objects.create_user(address)
    forget_unproved_password(person)
    person.operator_role = role or ""
    person.save()
    if Right.TENANTS not in rights_of(person):
        revoke_invitations_by(address)
    account_mails.write(kind=AccountMail.Kind.OPERATOR, to=address, values={"role": person.operator_role})
    return person
