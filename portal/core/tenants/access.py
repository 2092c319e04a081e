"""The only permission rule: who may do what in which tenant."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet
from django.http import Http404

from portal.core.tenants.asking import Ask, Rows, together
from portal.core.tenants.models import Role, Tenant, User

T = TypeVar("T")


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


Entered = tuple[Tenant, frozenset[Action]]
"""A tenant, and all that the person may do there."""


def entered(*, user: User | AnonymousUser, slug: str, action: Action) -> Entered:
    """The tenant in which `user` may do `action`, with all that they may; raises DeniedError. One query."""
    if not isinstance(user, User) or not user.is_active:
        raise DeniedError("nobody is signed in")
    return _let_in(_entering(user, slug).asked(), action)


def entered_among(
    *, user: User | AnonymousUser, slug: str, action: Action, limit: int, beside: Ask[T]
) -> tuple[Entered, list[tuple[str, str]], T]:
    """As `entered`, and as `named_tenants_of`, and the answer of `beside` for whoever may. One round trip."""
    if not isinstance(user, User) or not user.is_active:
        raise DeniedError("nobody is signed in")
    entering, named = _entering(user, slug), _named(user, limit)
    together(entering, named, beside)
    return _let_in(entering.answer, action), named.answer, beside.answer


def _entering(user: User, slug: str) -> Ask[Entered | None]:
    def made(rows: Rows) -> Entered | None:
        if not rows:
            return None
        role, *values = rows[0]
        return Tenant.from_db(DEFAULT_DB_ALIAS, _COLUMNS, values), _allowed(user, role)

    return Ask(_ENTERED, [user.pk, slug], made, kept=True)


def _let_in(found: Entered | None, action: Action) -> Entered:
    if found is None or action not in found[1]:
        raise DeniedError("no such tenant for this person")
    return found


def tenants_of(user: User) -> QuerySet[Tenant]:
    """The tenants that the person may open, by name."""
    found = Tenant.objects.all() if user.is_staff else Tenant.objects.filter(memberships__user=user)
    return found.order_by("name", "pk")


def named_tenants_of(user: User, *, limit: int) -> list[tuple[str, str]]:
    """Slug and name of the first of `tenants_of`. One query."""
    return _named(user, limit).asked()


def _named(user: User, limit: int) -> Ask[list[tuple[str, str]]]:
    sql, values = (_ANY, [limit]) if user.is_staff else (_OWN, [user.pk, limit])
    return Ask(sql, values, lambda rows: [(slug, name) for slug, name in rows], kept=True)


# Every page asks these: as plain statements, since the ORM would make them anew each time.
_COLUMNS = [field.attname for field in Tenant._meta.concrete_fields]
_ENTERED = f"""
SELECT m.role, {", ".join(f't."{field.column}"' for field in Tenant._meta.concrete_fields)}
FROM tenants_tenant t LEFT JOIN tenants_membership m ON m.tenant_id = t.id AND m.user_id = %s
WHERE t.slug = %s
"""  # noqa: S608 - the names are the model's
_ANY = "SELECT slug, name FROM tenants_tenant ORDER BY name, id LIMIT %s"
_OWN = """
SELECT t.slug, t.name FROM tenants_membership m JOIN tenants_tenant t ON t.id = m.tenant_id
WHERE m.user_id = %s ORDER BY t.name, t.id LIMIT %s
"""


def allowed_in(tenant: Tenant, user: User) -> frozenset[Action]:
    """All that the person may do in the tenant. One query."""
    return _allowed(user, tenant.memberships.filter(user=user).values_list("role", flat=True).first())


def _allowed(user: User, role: str | None) -> frozenset[Action]:
    allowed = ALLOWED[Role(role)] if role else frozenset()
    return allowed | STAFF if user.is_staff else allowed
