"""The only permission rule: who may do what in which tenant."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from django.contrib.auth.models import AnonymousUser
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404

from portal.core.tenants.models import Membership, Role, Tenant, User


class DeniedError(Http404):
    """Not a member, no such tenant, or too small a role: one answer, which a page gives as 404."""


class Action(Enum):
    """What somebody can want in a tenant."""

    READ = auto()  # usage and what it costs
    READ_INVOICES = auto()
    PAY = auto()
    MANAGE = auto()  # people and their roles


_USE = frozenset({Action.READ})
_BILLING = _USE | {Action.READ_INVOICES, Action.PAY}

ALLOWED: Mapping[Role, frozenset[Action]] = {
    Role.MEMBER: _USE,
    Role.BILLING: _BILLING,
    Role.OWNER: _BILLING | {Action.MANAGE},
}
STAFF = frozenset({Action.READ, Action.READ_INVOICES})
"""Whoever runs the machines may look into any tenant, but neither pays nor manages in its name."""


def entered(*, user: User | AnonymousUser, slug: str, action: Action) -> tuple[Tenant, frozenset[Action]]:
    """The tenant in which `user` may do `action`, with all that they may; raises DeniedError. One query."""
    if not isinstance(user, User) or not user.is_active:
        raise DeniedError("nobody is signed in")
    role = Membership.objects.filter(tenant=OuterRef("pk"), user=user).values("role")
    tenant = Tenant.objects.filter(slug=slug).annotate(role=Subquery(role)).first()
    if tenant is None or action not in (allowed := _allowed(user, tenant.role)):
        raise DeniedError("no such tenant for this person")
    return tenant, allowed


def tenants_of(user: User) -> QuerySet[Tenant]:
    """The tenants that the person may open, by name."""
    tenants = Tenant.objects.all() if user.is_staff else Tenant.objects.filter(memberships__user=user)
    return tenants.order_by("name", "pk")


def allowed_in(tenant: Tenant, user: User) -> frozenset[Action]:
    """All that the person may do in the tenant. One query."""
    return _allowed(user, tenant.memberships.filter(user=user).values_list("role", flat=True).first())


def _allowed(user: User, role: str | None) -> frozenset[Action]:
    allowed = ALLOWED[Role(role)] if role else frozenset()
    return allowed | STAFF if user.is_staff else allowed
