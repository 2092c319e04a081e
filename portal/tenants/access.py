"""The only permission rule: who may do what in which tenant."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from django.contrib.auth.models import AnonymousUser
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import QuerySet
from django.http import Http404

from portal.tenants.models import Role, Tenant, User


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


def tenant_for(*, user: User | AnonymousUser, slug: str, action: Action) -> Tenant:
    """The tenant in which `user` may do `action`; raises DeniedError. One query."""
    return entered(user=user, slug=slug, action=action)[0]


def entered(*, user: User | AnonymousUser, slug: str, action: Action) -> tuple[Tenant, frozenset[Action]]:
    """As `tenant_for`, with all that the person may do there."""
    if not isinstance(user, User) or not user.is_active:
        raise DeniedError("nobody is signed in")
    with connection.cursor() as cursor:
        cursor.execute(_ENTERED, [user.pk, slug])
        found = cursor.fetchone()
    allowed = _allowed(user, found[0]) if found else frozenset()
    if found is None or action not in allowed:
        raise DeniedError("no such tenant for this person")
    return Tenant.from_db(DEFAULT_DB_ALIAS, _COLUMNS, found[1:]), allowed


def tenants_of(user: User) -> QuerySet[Tenant]:
    """The tenants that the person may open, by name."""
    found = Tenant.objects.all() if user.is_staff else Tenant.objects.filter(memberships__user=user)
    return found.order_by("name", "pk")


def named_tenants_of(user: User, *, limit: int) -> list[tuple[str, str]]:
    """Slug and name of the first of `tenants_of`. One query."""
    with connection.cursor() as cursor:
        if user.is_staff:
            cursor.execute(_ANY, [limit])
        else:
            cursor.execute(_OWN, [user.pk, limit])
        return [(slug, name) for slug, name in cursor.fetchall()]


# Every page asks these: as plain statements, since the ORM would make them anew each time.
_COLUMNS = [field.attname for field in Tenant._meta.concrete_fields]  # noqa: SLF001
_ENTERED = f"""
SELECT m.role, {", ".join(f't."{field.column}"' for field in Tenant._meta.concrete_fields)}
FROM tenants_tenant t LEFT JOIN tenants_membership m ON m.tenant_id = t.id AND m.user_id = %s
WHERE t.slug = %s
"""  # noqa: S608, SLF001  # the names are the model's
_ANY = "SELECT slug, name FROM tenants_tenant ORDER BY name, id LIMIT %s"
_OWN = """
SELECT t.slug, t.name FROM tenants_membership m JOIN tenants_tenant t ON t.id = m.tenant_id
WHERE m.user_id = %s ORDER BY t.name, t.id LIMIT %s
"""


def _allowed(user: User, role: str | None) -> frozenset[Action]:
    allowed = ALLOWED[Role(role)] if role else frozenset()
    return allowed | STAFF if user.is_staff else allowed
