"""Signing in by an identity provider: whose account it is, and what of the grants of operators holds for them.

A claim alone gives nothing: a role comes from a grant that operators configured, never beyond it, and what an owner has
given or taken by hand stays as the owner left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.db import transaction

from portal.core.tenants import team
from portal.core.tenants.models import (
    Exclusion,
    IdentityGrant,
    IdentityProvider,
    Membership,
    Role,
    Tenant,
    User,
)
from portal.core.tenants.sign_on_messages import SENTENCES
from portal.core.tenants.team import TeamError
from portal.errors import CodedError


class SignOnError(CodedError):
    """Nobody is signed in; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Claims:
    """What a provider says of a person, who is `subject` to it for ever."""

    subject: str
    email: str  # in lower case; "" for none
    is_verified: bool  # the address, by the provider's word
    groups: frozenset[str] = frozenset()
    organizations: frozenset[str] = frozenset()  # values of the tenant claim


@transaction.atomic
def admit(*, provider: IdentityProvider, claims: Claims, moment: datetime) -> User:
    """The account of the person, with the memberships that grants give now. Said again, nothing changes.

    Known is who signed in by this provider before; else whoever has the verified address, if the provider speaks for
    its domain; else an account is made, where a grant gives it something. Raises SignOnError, also for an account whose
    address it does not speak for any more.
    """
    link = SocialAccount.objects.filter(provider=provider.name, uid=claims.subject).first()
    person = link.user if link is not None else _by_address(provider, claims)
    if not _speaks_for(provider, person.email):
        raise SignOnError("not-its-address", provider=provider.title, email=person.email)
    if not person.is_active:
        raise SignOnError("account-inactive", email=person.email)
    if person.operator_role and not provider.operators:
        raise SignOnError("not-for-operators", email=person.email, provider=provider.title)
    granted = _granted(provider, claims)
    is_new = person.pk is None
    if is_new:
        person.save()
    if link is None:
        SocialAccount.objects.create(user=person, provider=provider.name, uid=claims.subject)
        _prove_address(person)
    for tenant, role in granted.items():
        _give(provider, tenant, person, role, moment)
    _take(provider, person, granted)
    if is_new and not person.memberships.exists():
        raise SignOnError("no-place", provider=provider.title, email=person.email)
    return person


def _by_address(provider: IdentityProvider, claims: Claims) -> User:
    """The account that has the address, locked, or a new one, not saved yet."""
    if not claims.email or not claims.is_verified:
        raise SignOnError("not-verified", provider=provider.title)
    if not _speaks_for(provider, claims.email):
        raise SignOnError("not-its-address", provider=provider.title, email=claims.email)
    person = User.objects.select_for_update().filter(email=claims.email).first()
    if person is None:
        person = User(email=claims.email)
        person.set_unusable_password()
    elif SocialAccount.objects.filter(user=person, provider=provider.name).exists():
        raise SignOnError("another-link", provider=provider.title, email=claims.email)
    return person


def _domain(email: str) -> str:
    return email.rpartition("@")[2]


def _speaks_for(provider: IdentityProvider, email: str) -> bool:
    return _domain(email) in provider.domains


def _granted(provider: IdentityProvider, claims: Claims) -> Mapping[Tenant, Role]:
    """The highest role that a grant gives, by tenant. One query."""
    is_theirs = claims.is_verified and _speaks_for(provider, claims.email)
    rank = {role: place for place, role in enumerate(Role)}  # the highest first
    granted: dict[Tenant, Role] = {}
    for grant in provider.grants.select_related("tenant").order_by("tenant", "pk"):
        role = Role(grant.role)
        if _holds(grant, claims, is_theirs=is_theirs):
            granted[grant.tenant] = min(role, granted.get(grant.tenant, role), key=rank.__getitem__)
    return granted


def _holds(grant: IdentityGrant, claims: Claims, *, is_theirs: bool) -> bool:
    """Whether all that the grant asks for is so."""
    return (
        (not grant.domain or (is_theirs and grant.domain == _domain(claims.email)))
        and (not grant.claim or grant.claim in claims.organizations)
        and (not grant.group or grant.group in claims.groups)
    )


def _give(provider: IdentityProvider, tenant: Tenant, person: User, role: Role, moment: datetime) -> None:
    """Have the person in with the role; whoever was let in by hand, or was removed, stays as they are."""
    team.lock(tenant)
    member = Membership.objects.select_related("tenant").filter(tenant=tenant, user=person).first()
    if member is None:
        if not Exclusion.objects.filter(tenant=tenant, email=person.email).exists():
            team.let_in(tenant=tenant, user=person, role=role, through=provider.name, moment=moment)
    elif member.through == provider.name and member.role != role:
        _unless_last_owner(member, role)


def _take(provider: IdentityProvider, person: User, granted: Mapping[Tenant, Role]) -> None:
    """End what the provider gave and no grant gives any more."""
    rows = Membership.objects.select_related("tenant").filter(user=person, through=provider.name)
    for member in rows.exclude(tenant__in=[tenant.pk for tenant in granted]).order_by("tenant"):
        _unless_last_owner(member, None)


def _unless_last_owner(member: Membership, role: Role | None) -> None:
    """A tenant always keeps an owner, whatever a provider says."""
    try:
        if role is None:
            team.remove_member(member=member, excluded=False)
        else:
            team.set_role(member=member, role=role, through=member.through)
    except TeamError as refusal:
        if not refusal.code.startswith("last-owner"):
            raise


def _prove_address(person: User) -> None:
    """The provider has seen to it. A password that was chosen before anybody did so may be somebody else's."""
    address, _ = EmailAddress.objects.get_or_create(user=person, email=person.email)
    if not address.verified and person.has_usable_password():
        person.set_unusable_password()
        person.save(update_fields=["password"])
    address.verified = True
    address.save()
    address.set_as_primary()
